//! Protects legwork's own process from its children and from other processes of the same user.

/// Makes this process's memory and environment unreadable to other processes of the same user. Also wipes secrets from the
/// environment block, which root can still read, and on macOS every process of the same user outside of the sandbox.
///
/// Call it after reading the environment and before starting any thread.
pub(super) fn harden(is_secret: impl Fn(&str) -> bool) {
    // Every kernel allows this, but a sandbox might not. Failing is fine, as it is only a second line of defence.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    wipe_environment(is_secret);
}

/// Overwrites the values of secret variables in place.
#[allow(unsafe_code)]
fn wipe_environment(is_secret: impl Fn(&str) -> bool) {
    use std::ffi::CStr;
    #[cfg(not(target_os = "macos"))]
    unsafe extern "C" {
        static environ: *const *mut std::ffi::c_char;
    }
    // SAFETY: `environ` is null or a null-terminated list of C strings (POSIX) in writable memory. There is no other thread
    // yet that could access it. Only bytes before the end of a string are written.
    unsafe {
        #[cfg(target_os = "macos")]
        let environ = *libc::_NSGetEnviron();
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let length = text.len();
            let name = text
                .iter()
                .position(|byte| *byte == b'=')
                .filter(|end| std::str::from_utf8(&text[..*end]).is_ok_and(&is_secret));
            if let Some(end) = name {
                for at in end + 1..length {
                    (*entry).add(at).write_volatile(0);
                }
            }
            entry = entry.add(1);
        }
    }
}

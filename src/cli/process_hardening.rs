//! Our own process, kept from what we start and from others of the same user.

/// Makes this process's memory and environment unreadable to other processes of the same user, and takes the secrets out
/// of the environment that the system shows of it: root can read that all the same.
///
/// To be called once the environment was read, before any other thread is there.
#[cfg(target_os = "linux")]
pub(super) fn harden(is_secret: impl Fn(&str) -> bool) {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // Refused by no kernel; a sandbox around us may, and it is a second line only.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    wipe_environment(is_secret);
}

/// There is nothing of the kind.
#[cfg(not(target_os = "linux"))]
pub(super) fn raise(_: impl Fn(&str) -> bool) {}

/// Overwrites the values of these variables where they lie.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn wipe_environment(is_secret: impl Fn(&str) -> bool) {
    use std::ffi::{CStr, c_char};
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    // SAFETY: `environ` is null or a list of C strings that ends with null (POSIX), in memory that the process may write to.
    // No other thread is there yet to change or read it. Only bytes before a string's end are written.
    unsafe {
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

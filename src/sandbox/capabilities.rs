//! How a process gives up all that makes root more than a user, for good. Only system calls: it runs between fork and
//! exec.

use std::io;

/// See `<linux/capability.h>`: sets of 64 bits, in two halves.
const VERSION_3: u32 = 0x2008_0522;
/// No kernel has more capabilities than bits in a set.
const MAX_CAPABILITIES: libc::c_ulong = 64;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// No new privileges, no capability in any set, and no way for user 0 to get some by executing a file.
///
/// # Errors
/// Where privileges or capabilities would stay.
pub(super) fn drop_all() -> io::Result<()> {
    no_new_privileges()?;
    let bits = libc::SECBIT_NOROOT
        | libc::SECBIT_NOROOT_LOCKED
        | libc::SECBIT_NO_SETUID_FIXUP
        | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
        | libc::SECBIT_KEEP_CAPS_LOCKED
        | libc::SECBIT_NO_CAP_AMBIENT_RAISE
        | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    // It takes a capability, without which nothing can be gained either: no new privileges sees to that.
    let _ = prctl(libc::PR_SET_SECUREBITS, bits as libc::c_ulong);
    let mut capability = 0;
    while capability < MAX_CAPABILITIES && prctl(libc::PR_CAPBSET_DROP, capability).is_ok() {
        capability += 1;
    }
    // Unknown to kernels before 4.3, which have no such set.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    clear_capability_sets()
}

/// Keeps this process and its children from ever gaining privileges, by a set-user-id program for instance.
pub(super) fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

#[allow(unsafe_code)]
fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: these options of prctl(2) take numbers only.
    match unsafe { libc::prctl(option, value, zero, zero, zero) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[allow(unsafe_code)]
fn clear_capability_sets() -> io::Result<()> {
    let header = CapabilityHeader { version: VERSION_3, pid: 0 };
    let none = [CapabilityData::default(); 2];
    // SAFETY: the header and both halves outlive the call, which only reads them.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

//! Drops all capabilities of a process for good. Makes only system calls, because it runs between fork and exec.

use std::io;

/// The version of the interface with sets of 64 bits in two halves, see `<linux/capability.h>`.
const VERSION_3: u32 = 0x2008_0522;
/// No kernel has more capabilities than a set has bits.
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

/// Clears every capability set, and keeps the process from gaining privileges by executing a file, even as root.
///
/// # Errors
/// If privileges or capabilities would remain.
pub(super) fn drop_all() -> io::Result<()> {
    no_new_privileges()?;
    let bits = libc::SECBIT_NOROOT
        | libc::SECBIT_NOROOT_LOCKED
        | libc::SECBIT_NO_SETUID_FIXUP
        | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
        | libc::SECBIT_KEEP_CAPS_LOCKED
        | libc::SECBIT_NO_CAP_AMBIENT_RAISE
        | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    // This needs a capability. Without it, `no_new_privs` already prevents that any are gained.
    let _ = prctl(libc::PR_SET_SECUREBITS, bits as libc::c_ulong);
    let mut capability = 0;
    while capability < MAX_CAPABILITIES && prctl(libc::PR_CAPBSET_DROP, capability).is_ok() {
        capability += 1;
    }
    // Kernels before 4.3 have no ambient set.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    clear_capability_sets()
}

/// Keeps this process and its children from ever gaining privileges, for instance through a set-user-id program.
pub(super) fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

#[allow(unsafe_code)]
fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: these options of prctl(2) take only numbers.
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

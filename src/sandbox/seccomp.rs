//! Which system calls commands may make.
//!
//! What is denied is what no build, test or tool of text needs and what has often been a way out: the kernel's keyring,
//! io_uring, mounts and new namespaces, other processes' memory, odd sockets. Calls that are newer than this file don't
//! exist for commands. Numbers and meanings are those of the kernel's syscall tables and manual pages.

use libc::{EOPNOTSUPP, EPERM, c_long};

use super::bpf::{ArgRule, BpfProgram, SeccompAction};
use crate::job::Network;

/// The architecture as `<linux/audit.h>` numbers it; 0 where no filter is known.
const ARCH: u32 = if cfg!(all(target_arch = "x86_64", target_endian = "little")) {
    0xc000_003e
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    0xc000_00b7
} else {
    0
};
/// The newest call that is known here, `mseal`. x32's calls have numbers far above.
const LAST: u32 = 462;
const DENY: SeccompAction = SeccompAction::Errno(EPERM);
const NOT_IMPLEMENTED: SeccompAction = SeccompAction::Errno(libc::ENOSYS);
const ALL: u32 = u32::MAX;
/// The bits of a mode that let others act as the file's owner or group.
const SET_ID: u32 = 0o6000;
/// Flags of clone(2) and unshare(2) that make a namespace.
const NAMESPACES: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS
    | CLONE_NEWTIME) as u32;
/// See clone(2); only unshare(2) and clone3(2) take it.
const CLONE_NEWTIME: i32 = 0x80;

/// Calls that fail whatever their arguments.
const DENIED_CALLS: &[c_long] = &[
    // Secrets of the kernel's keyring, which outlive processes and cross namespaces.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // The kernel's own machines.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // Modules, and other kernels.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    // What is where.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Files by number, without a path.
    libc::SYS_open_by_handle_at,
    // Other processes' memory and files.
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The machine.
    libc::SYS_acct,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that act as on a kernel without them, for which programs have another way.
const NOT_IMPLEMENTED_CALLS: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Their flags are in memory, where no filter sees them; libc falls back to the older calls.
    libc::SYS_clone3,
    libc::SYS_openat2,
];

/// The filter of a command in namespaces of its own, as `bwrap --seccomp` takes it; empty where the architecture isn't
/// known here. Without a network it still has the loopback interface of its own namespace, but no unix sockets, which
/// would reach any server whose socket it can see.
pub fn bubblewrap_filter(network: Network) -> Vec<u8> {
    let Some(mut program) = base_program() else { return Vec::new() };
    let families: &[i32] = match network {
        Network::None => &[libc::AF_INET, libc::AF_INET6],
        Network::Open => &[libc::AF_INET, libc::AF_INET6, libc::AF_UNIX],
    };
    allow_sockets(&mut program, families, true);
    deny_set_id_modes(&mut program, libc::SYS_fchmod, 1);
    deny_set_id_modes(&mut program, libc::SYS_fchmodat, 2);
    deny_set_id_modes(&mut program, SYS_FCHMODAT2, 2);
    #[cfg(target_arch = "x86_64")]
    deny_set_id_modes(&mut program, libc::SYS_chmod, 1);
    restrict_opens(&mut program, false);
    deny_ioctls(&mut program, &[]);
    program.finish()
}

/// The filter of a command that shares everything with the machine but what landlock, at version `abi`, keeps from it.
/// Who asks to change a file's mode or times, which landlock doesn't know, gets its answer from the filter's listener.
/// Empty where the architecture isn't known here.
pub(super) fn landlock_filter(network: Network, abi: i32) -> Vec<u8> {
    let Some(mut program) = base_program() else { return Vec::new() };
    match network {
        Network::None => allow_sockets(&mut program, &[], false),
        // Unix sockets reach any server whose path is known, Docker's as well, which would be a way out.
        Network::Open => allow_sockets(&mut program, &[libc::AF_INET, libc::AF_INET6], true),
    }
    for call in NOTIFIED_CALLS {
        program.add_call(*call, &[], SeccompAction::Notify);
    }
    for call in [
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
    ] {
        program.add_call(call, &[], SeccompAction::Errno(EOPNOTSUPP));
    }
    for call in SYSTEM_V {
        program.add_call(*call, &[], DENY);
    }
    // What is the runner's as well as others': each is only for the process or thread that calls, which is 0.
    for call in PROCESS_TARGET_CALLS {
        program.add_call(*call, &[ArgRule(&[(0, ALL, 0)], SeccompAction::Allow)], DENY);
    }
    // These take processes, groups and users by number; 0 is one's own, but one's own user is the runner's, too.
    for (call, kinds) in [
        (libc::SYS_setpriority, [PRIO_PROCESS, PRIO_PGRP]),
        (libc::SYS_ioprio_set, [IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP]),
    ] {
        let own = kinds.map(|kind| [(0, ALL, kind), (1, ALL, 0)]);
        program.add_call(call, &own.each_ref().map(|is| ArgRule(is, SeccompAction::Allow)), DENY);
    }
    // Before its third version landlock knew nothing of truncation.
    let knows_truncation = abi >= 3;
    if !knows_truncation {
        program.add_call(libc::SYS_truncate, &[], DENY);
    }
    restrict_opens(&mut program, !knows_truncation);
    deny_ioctls(&mut program, FILE_FLAG_IOCTLS);
    program.finish()
}

/// Memory, semaphores and queues that belong to no folder and that anyone of the same user reaches by their numbers.
const SYSTEM_V: &[c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Limits, scheduling and places in memory of a process, which is the first argument.
const PROCESS_TARGET_CALLS: &[c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// See setpriority(2).
const PRIO_PROCESS: u32 = 0;
const PRIO_PGRP: u32 = 1;
/// See ioprio_set(2).
const IOPRIO_WHO_PROCESS: u32 = 1;
const IOPRIO_WHO_PGRP: u32 = 2;

/// Changes of modes, owners and times.
const NOTIFIED_CALLS: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// The same number on every architecture.
pub(super) const SYS_FCHMODAT2: c_long = 452;

/// Requests that put words into a terminal's mouth, see ioctl_tty(2).
const TERMINAL_INJECTION_IOCTLS: [u32; 2] = [0x5412, 0x541c];
/// Requests that change a file through a descriptor that was opened for reading, see `<linux/fs.h>`: SETFLAGS and its
/// 32-bit form, FSSETXATTR, SETVERSION, ENABLE_VERITY.
const FILE_FLAG_IOCTLS: &[u32] = &[0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4080_6685];

fn base_program() -> Option<BpfProgram> {
    if ARCH == 0 {
        return None;
    }
    let mut program = BpfProgram::new(ARCH, LAST);
    for call in DENIED_CALLS {
        program.add_call(*call, &[], DENY);
    }
    for call in NOT_IMPLEMENTED_CALLS {
        program.add_call(*call, &[], NOT_IMPLEMENTED);
    }
    program.add_call(libc::SYS_unshare, &[ArgRule(&[(0, NAMESPACES, 0)], SeccompAction::Allow)], DENY);
    // The signal of clone(2) is in the lowest byte, where NEWTIME isn't a flag.
    program.add_call(libc::SYS_clone, &[ArgRule(&[(0, NAMESPACES & !0xff, 0)], SeccompAction::Allow)], DENY);
    let personalities = PERSONALITIES.map(|kind| [(0, ALL, kind)]);
    program.add_call(
        libc::SYS_personality,
        &personalities.each_ref().map(|is| ArgRule(is, SeccompAction::Allow)),
        DENY,
    );
    deny_set_id_modes(&mut program, libc::SYS_mknodat, 2);
    #[cfg(target_arch = "x86_64")]
    deny_set_id_modes(&mut program, libc::SYS_mknod, 1);
    Some(program)
}

/// Linux's own, the same with few other habits (UNAME26, ADDR_NO_RANDOMIZE, which debuggers want), and the question which
/// it is; see personality(2).
const PERSONALITIES: [u32; 4] = [0, 0x0002_0000, 0x0004_0000, ALL];

/// Denies a call that would let others act as a file's owner or group: whoever can make such a file leaves a way into
/// this account behind.
fn deny_set_id_modes(program: &mut BpfProgram, call: c_long, mode: usize) {
    program.add_call(call, &[ArgRule(&[(mode, SET_ID, 0)], SeccompAction::Allow)], DENY);
}

/// Denies the same where a file is made by opening it, and where asked, truncation by opening for reading.
fn restrict_opens(program: &mut BpfProgram, deny_truncation: bool) {
    let makes = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
    let truncates = libc::O_TRUNC as u32;
    let mut open = |call, flags: usize| {
        let reads = [(flags, truncates | libc::O_ACCMODE as u32, truncates)];
        let tests = [
            ArgRule(&reads, DENY),
            ArgRule(&[(flags, makes, 0)], SeccompAction::Allow),
            ArgRule(&[(flags + 1, SET_ID, 0)], SeccompAction::Allow),
        ];
        program.add_call(call, if deny_truncation { &tests } else { &tests[1..] }, DENY);
    };
    open(libc::SYS_openat, 2);
    #[cfg(target_arch = "x86_64")]
    open(libc::SYS_open, 1);
    #[cfg(target_arch = "x86_64")]
    deny_set_id_modes(program, libc::SYS_creat, 1);
}

/// Denies requests to terminals, and others.
fn deny_ioctls(program: &mut BpfProgram, others: &[u32]) {
    let conditions: Vec<_> =
        TERMINAL_INJECTION_IOCTLS.iter().chain(others).map(|request| [(1, ALL, *request)]).collect();
    let tests: Vec<_> = conditions.iter().map(|is| ArgRule(is, DENY)).collect();
    program.add_call(libc::SYS_ioctl, &tests, SeccompAction::Allow);
}

/// Allows stream and datagram sockets of some families, pairs, and where asked the socket by which getifaddrs(3) reads
/// addresses.
fn allow_sockets(program: &mut BpfProgram, families: &[i32], addresses: bool) {
    let kinds = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET];
    let of_kind = |family: i32| kinds.map(|kind| [(0, ALL, family as u32), (1, 0xf, kind as u32)]);
    let mut conditions: Vec<_> = families.iter().flat_map(|family| of_kind(*family)).collect();
    if addresses {
        conditions.push([(0, ALL, libc::AF_NETLINK as u32), (2, ALL, libc::NETLINK_ROUTE as u32)]);
    }
    let tests: Vec<_> = conditions.iter().map(|are| ArgRule(are, SeccompAction::Allow)).collect();
    program.add_call(libc::SYS_socket, &tests, DENY);
    program.add_call(libc::SYS_socketpair, &[ArgRule(&[(0, ALL, libc::AF_UNIX as u32)], SeccompAction::Allow)], DENY);
}

//! Which system calls commands may make.
//!
//! Denied are calls that builds, tests and text tools don't need and that have often been used to escape: the kernel's keyring,
//! io_uring, mounts and new namespaces, other processes' memory, unusual sockets. Calls that are newer than this file fail as
//! unknown. Numbers and meanings are from the kernel's system call tables and manual pages.

use libc::{EOPNOTSUPP, EPERM, c_long};

use super::bpf::{ArgRule, BpfProgram, SeccompAction};
use crate::egress::NetworkAccess;

/// The architecture's number in `<linux/audit.h>`; 0 if there is no filter for it.
const ARCH: u32 = if cfg!(all(target_arch = "x86_64", target_endian = "little")) {
    0xc000_003e
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    0xc000_00b7
} else {
    0
};
/// The newest known call, `mseal`. The numbers of x32's calls are far above.
const LAST: u32 = 462;
const DENY: SeccompAction = SeccompAction::Errno(EPERM);
const ALL: u32 = u32::MAX;
/// The set-user-id and set-group-id bits of a mode.
const SET_ID: u32 = 0o6000;
/// Flags of clone(2) and unshare(2) that create a namespace.
const NAMESPACES: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS
    | CLONE_NEWTIME) as u32;
/// See clone(2); only unshare(2) and clone3(2) accept it.
const CLONE_NEWTIME: i32 = 0x80;

/// Calls that always fail.
const DENIED_CALLS: &[c_long] = &[
    // The kernel's keyring, whose secrets outlive processes and cross namespaces.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Kernel interfaces with a large attack surface.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // Kernel modules and other kernels.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    // Mounts and namespaces.
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
    // Files by handle instead of by path.
    libc::SYS_open_by_handle_at,
    // Memory and files of other processes.
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The machine as a whole.
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

/// Calls that fail as unimplemented, because programs have a fallback for older kernels.
const NOT_IMPLEMENTED_CALLS: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Their flags are in memory, which filters can't read; libc falls back to the older calls.
    libc::SYS_clone3,
    libc::SYS_openat2,
];

/// The filter for a command in its own namespaces, in the format of `bwrap --seccomp`; empty for an unknown architecture.
/// Without network access, the command still has the loopback interface of its namespace, but no unix sockets, which would reach
/// every server whose socket file it sees.
pub fn bubblewrap_filter(network: NetworkAccess) -> Vec<u8> {
    let Some(mut program) = base_program() else { return Vec::new() };
    let families: &[i32] = match network {
        NetworkAccess::None | NetworkAccess::Hosts => &[libc::AF_INET, libc::AF_INET6],
        NetworkAccess::Open => &[libc::AF_INET, libc::AF_INET6, libc::AF_UNIX],
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

/// The filter for a command that only landlock, at version `abi`, separates from the machine. Calls that change a file's mode,
/// owner or times, which landlock doesn't control, are passed to the filter's listener. Empty for an unknown architecture.
pub(super) fn landlock_filter(network: NetworkAccess, abi: i32) -> Vec<u8> {
    let Some(mut program) = base_program() else { return Vec::new() };
    match network {
        NetworkAccess::None => allow_sockets(&mut program, &[], false),
        NetworkAccess::Hosts => allow_notified_connections(&mut program),
        // No unix sockets: they reach every server whose path is known, and Docker's would be a way out.
        NetworkAccess::Open => allow_sockets(&mut program, &[libc::AF_INET, libc::AF_INET6], true),
    }
    program.add_calls(NOTIFIED_CALLS, SeccompAction::Notify);
    program.add_calls(ATTRIBUTE_CALLS, SeccompAction::Errno(EOPNOTSUPP));
    program.add_calls(IPC_CALLS, DENY);
    // Only on the calling process or thread itself, which is 0: others belong to the same user.
    for call in PROCESS_TARGET_CALLS {
        program.allow_only(*call, &[[(0, ALL, 0)]]);
    }
    // These take a process, process group or user by number. 0 is the caller's own, but this program has the same user.
    for (call, kinds) in [
        (libc::SYS_setpriority, [PRIO_PROCESS, PRIO_PGRP]),
        (libc::SYS_ioprio_set, [IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP]),
    ] {
        program.allow_only(call, &kinds.map(|kind| [(0, ALL, kind), (1, ALL, 0)]));
    }
    // Landlock controls truncation since its third version.
    let controls_truncation = abi >= 3;
    if !controls_truncation {
        program.add_calls(&[libc::SYS_truncate], DENY);
    }
    restrict_opens(&mut program, !controls_truncation);
    deny_ioctls(&mut program, FILE_FLAG_IOCTLS);
    program.finish()
}

/// Changes of extended attributes.
const ATTRIBUTE_CALLS: &[c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Shared memory, semaphores and message queues, which have no path and which all processes of a user share.
const IPC_CALLS: &[c_long] = &[
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

/// Limits, scheduling and memory placement of a process, which is the first argument.
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

/// Has the same number on every architecture.
pub(super) const SYS_FCHMODAT2: c_long = 452;

/// Requests that inject input into a terminal, see ioctl_tty(2).
const TERMINAL_INJECTION_IOCTLS: [u32; 2] = [0x5412, 0x541c];
/// Requests that change a file through a read-only descriptor, see `<linux/fs.h>`: SETFLAGS and its 32-bit form, FSSETXATTR,
/// SETVERSION, ENABLE_VERITY.
const FILE_FLAG_IOCTLS: &[u32] = &[0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4080_6685];

fn base_program() -> Option<BpfProgram> {
    if ARCH == 0 {
        return None;
    }
    let mut program = BpfProgram::new(ARCH, LAST);
    program.add_calls(DENIED_CALLS, DENY);
    program.add_calls(NOT_IMPLEMENTED_CALLS, SeccompAction::Errno(libc::ENOSYS));
    program.allow_only(libc::SYS_unshare, &[[(0, NAMESPACES, 0)]]);
    // The lowest byte of clone(2)'s flags is a signal, so NEWTIME isn't a flag there.
    program.allow_only(libc::SYS_clone, &[[(0, NAMESPACES & !0xff, 0)]]);
    program.allow_only(libc::SYS_personality, &PERSONALITIES.map(|kind| [(0, ALL, kind)]));
    deny_set_id_modes(&mut program, libc::SYS_mknodat, 2);
    #[cfg(target_arch = "x86_64")]
    deny_set_id_modes(&mut program, libc::SYS_mknod, 1);
    Some(program)
}

/// Linux's default, its variants UNAME26 and ADDR_NO_RANDOMIZE (used by debuggers), and the query value; see personality(2).
const PERSONALITIES: [u32; 4] = [0, 0x0002_0000, 0x0004_0000, ALL];

/// Denies set-user-id and set-group-id bits in a mode argument: such a file would give other users access to this account.
fn deny_set_id_modes(program: &mut BpfProgram, call: c_long, mode: usize) {
    program.allow_only(call, &[[(mode, SET_ID, 0)]]);
}

/// Denies the same when a file is created by opening it, and optionally truncation by opening for reading.
fn restrict_opens(program: &mut BpfProgram, deny_truncation: bool) {
    let creates = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
    let truncates = libc::O_TRUNC as u32;
    let mut open = |call, flags: usize| {
        let reads = [(flags, truncates | libc::O_ACCMODE as u32, truncates)];
        let tests = [
            ArgRule(&reads, DENY),
            ArgRule(&[(flags, creates, 0)], SeccompAction::Allow),
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

/// Denies terminal injection and other requests.
fn deny_ioctls(program: &mut BpfProgram, others: &[u32]) {
    let conditions: Vec<_> =
        TERMINAL_INJECTION_IOCTLS.iter().chain(others).map(|request| [(1, ALL, *request)]).collect();
    let tests: Vec<_> = conditions.iter().map(|is| ArgRule(is, DENY)).collect();
    program.add_call(libc::SYS_ioctl, &tests, SeccompAction::Allow);
}

/// Allows stream and datagram sockets of some families, socket pairs, and optionally the netlink socket of getifaddrs(3).
fn allow_sockets(program: &mut BpfProgram, families: &[i32], allow_getifaddrs: bool) {
    let kinds = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET];
    let of_kind = |family: i32| kinds.map(|kind| [(0, ALL, family as u32), (1, 0xf, kind as u32)]);
    let mut conditions: Vec<_> = families.iter().flat_map(|family| of_kind(*family)).collect();
    if allow_getifaddrs {
        conditions.push([(0, ALL, libc::AF_NETLINK as u32), (2, ALL, libc::NETLINK_ROUTE as u32)]);
    }
    program.allow_only(libc::SYS_socket, &conditions);
    allow_pairs(program, families.contains(&libc::AF_UNIX));
}

/// Allows socket pairs. A datagram socket can send to every server whose socket file it sees, also if it is one of a pair.
fn allow_pairs(program: &mut BpfProgram, allow_datagrams: bool) {
    let kinds = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM];
    let kinds = &kinds[..if allow_datagrams { 3 } else { 2 }];
    let pairs: Vec<_> = kinds.iter().map(|kind| [(0, ALL, libc::AF_UNIX as u32), (1, 0xf, *kind as u32)]).collect();
    program.allow_only(libc::SYS_socketpair, &pairs);
}

/// Allows sockets of TCP over IPv4, whose connections are made by the filter's listener.
fn allow_notified_connections(program: &mut BpfProgram) {
    let tcp =
        |protocol: i32| [(0, ALL, libc::AF_INET as u32), (1, 0xf, libc::SOCK_STREAM as u32), (2, ALL, protocol as u32)];
    program.allow_only(libc::SYS_socket, &[tcp(0), tcp(libc::IPPROTO_TCP)]);
    allow_pairs(program, false);
    program.add_calls(&[libc::SYS_connect], SeccompAction::Notify);
    program.add_calls(&[libc::SYS_bind, libc::SYS_listen], DENY);
    // This flag connects without connect(2). Without it, these sockets ignore the address of a message.
    let fast_open = libc::MSG_FASTOPEN as u32;
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        program.allow_only(call, &[[(flags, fast_open, 0)]]);
    }
}

//! System calls that no shell makes. This test binary makes them when it is started again inside a command.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// The output of a successful attempt.
pub(super) const ESCAPED_MARK: &str = "GOT-IN";
/// The variable that names the attempt and its arguments, separated by spaces.
pub(super) const PROBE_VARIABLE: &str = "LEGWORK_TRIAL";

/// The command that makes an attempt.
pub(super) fn probe_command(trial: &str) -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!(
        "{PROBE_VARIABLE}='{trial}' ./probe {module}::trial --exact --nocapture --test-threads=1 2>&1 | grep -a {ESCAPED_MARK}"
    )
}

/// The entry point of an attempt. Does nothing unless [`probe_command`] started it.
#[test]
fn trial() {
    let Ok(trial) = std::env::var(PROBE_VARIABLE) else { return };
    let words: Vec<&str> = trial.split(' ').collect();
    let got_in = match words.as_slice() {
        ["socket", family, kind, protocol] => socket(family, kind, protocol),
        ["tcp", address] => std::net::TcpStream::connect(address).is_ok_and(|mut stream| stream.read(&mut [0]).is_ok()),
        ["udp", address] => UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"x", address)).is_ok(),
        ["unix", path] => UnixStream::connect(path).is_ok_and(|mut stream| stream.write_all(b"x").is_ok()),
        ["datagram", path] => datagram(path),
        ["abstract", name] => {
            SocketAddr::from_abstract_name(name).and_then(|name| UnixStream::connect_addr(&name)).is_ok()
        }
        ["handle", path] => handle(path),
        [name] => call(name, 0),
        [name, process] => call(name, process.parse().unwrap()),
        _ => panic!("no such trial: {trial}"),
    };
    if got_in {
        println!("{ESCAPED_MARK}");
    }
}

#[allow(unsafe_code)]
fn socket(family: &str, kind: &str, protocol: &str) -> bool {
    let number = |word: &str| word.parse::<i32>().unwrap();
    // SAFETY: all arguments are plain numbers.
    unsafe { libc::socket(number(family), number(kind), number(protocol)) >= 0 }
}

/// Sends to a socket of another program by one of a pair.
fn datagram(path: &str) -> bool {
    std::os::unix::net::UnixDatagram::pair().is_ok_and(|(one, _)| one.send_to(b"x", path).is_ok())
}

/// Opens a file by its handle, without a path.
#[allow(unsafe_code)]
fn handle(path: &str) -> bool {
    #[repr(C)]
    struct Handle {
        length: u32,
        kind: i32,
        bytes: [u8; 128],
    }
    let path = std::ffi::CString::new(path).unwrap();
    let mut handle = Handle { length: 128, kind: 0, bytes: [0; 128] };
    let mut mount = 0;
    // SAFETY: the structure has the layout of file_handle(2) and the capacity that its length states.
    unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), &raw mut handle, &raw mut mount, 0)
            == 0
            && libc::syscall(libc::SYS_open_by_handle_at, libc::AT_FDCWD, &raw mut handle, libc::O_RDONLY) >= 0
    }
}

/// System-wide objects outside of the file system that every user of the machine can use; removed on drop.
pub(super) struct SystemVObjects {
    pub(super) memory: i32,
    pub(super) queue: i32,
    pub(super) semaphores: i32,
}

impl SystemVObjects {
    #[allow(unsafe_code)]
    pub(super) fn new() -> Self {
        // SAFETY: the arguments are numbers, and a message of the stated size with one byte of text.
        unsafe {
            let this = Self {
                memory: libc::shmget(libc::IPC_PRIVATE, 4096, 0o666),
                queue: libc::msgget(libc::IPC_PRIVATE, 0o666),
                semaphores: libc::semget(libc::IPC_PRIVATE, 1, 0o666),
            };
            for _ in 0..8 {
                libc::msgsnd(this.queue, [1_u64, 0].as_ptr().cast(), 1, libc::IPC_NOWAIT);
            }
            this
        }
    }
}

impl Drop for SystemVObjects {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: all arguments are plain numbers.
        unsafe {
            libc::shmctl(self.memory, libc::IPC_RMID, std::ptr::null_mut());
            libc::msgctl(self.queue, libc::IPC_RMID, std::ptr::null_mut());
            libc::semctl(self.semaphores, 0, libc::IPC_RMID);
        }
    }
}

#[allow(unsafe_code)]
fn call(name: &str, process: i32) -> bool {
    let mut zeros = [0_u64; 64];
    let at = zeros.as_mut_ptr();
    let result = {
        // SAFETY: calls that take a structure get a zeroed one that is larger than any of the structures.
        unsafe {
            match name {
                "io_uring" => libc::syscall(libc::SYS_io_uring_setup, 4, at),
                "add_key" => {
                    libc::syscall(libc::SYS_add_key, c"user".as_ptr(), c"legwork".as_ptr(), c"x".as_ptr(), 1, -2)
                }
                "keyctl" => libc::syscall(libc::SYS_keyctl, 0, -3, 1),
                "userfaultfd" => libc::syscall(libc::SYS_userfaultfd, 1),
                "perf" => {
                    // This clock needs no hardware counter: PERF_TYPE_SOFTWARE.
                    at.cast::<u32>().write(1);
                    libc::syscall(libc::SYS_perf_event_open, at, 0, -1, -1, 0)
                }
                "bpf" => libc::syscall(
                    libc::SYS_bpf,
                    0,
                    {
                        // A map with one entry: BPF_MAP_TYPE_ARRAY, key and value of four bytes.
                        let attributes = at.cast::<u32>();
                        for (number, value) in [2, 4, 4, 1].into_iter().enumerate() {
                            attributes.add(number).write(value);
                        }
                        at
                    },
                    128,
                ),
                "shm" => libc::syscall(libc::SYS_shmget, 0x1e60_0000 + std::process::id() as i32, 4096, 0o1600),
                "clone" => {
                    // Only a single-threaded process can create its own user namespace, but any process can start such
                    // a process.
                    let child = libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0);
                    if child == 0 {
                        libc::_exit(0);
                    }
                    child
                }
                "ptrace" => libc::syscall(libc::SYS_ptrace, libc::PTRACE_SEIZE, process, 0, 0),
                "process_vm" => {
                    // No memory is mapped at address zero: denial gives EPERM or ESRCH, access gives EFAULT.
                    let remote = libc::iovec { iov_base: 0x1000 as *mut _, iov_len: 8 };
                    let local = libc::iovec { iov_base: at.cast(), iov_len: 8 };
                    let read = libc::syscall(
                        libc::SYS_process_vm_readv,
                        process,
                        &raw const local,
                        1,
                        &raw const remote,
                        1,
                        0,
                    );
                    let error = std::io::Error::last_os_error().raw_os_error();
                    if read < 0 && error == Some(libc::EFAULT) { 0 } else { read }
                }
                "prlimit" => libc::syscall(libc::SYS_prlimit64, process, libc::RLIMIT_NOFILE, 0, at),
                // A process of the same user can set all of these. Most are set to their present value.
                "renice" => libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, process, 19),
                "affinity" => {
                    at.write(u64::MAX);
                    libc::syscall(libc::SYS_sched_setaffinity, process, 8, at)
                }
                "scheduler" => libc::syscall(libc::SYS_sched_setscheduler, process, libc::SCHED_OTHER, at),
                "sched_attr" => {
                    // The first version of the structure, with policy SCHED_OTHER and the lowest priority.
                    at.cast::<u32>().write(48);
                    at.cast::<u32>().add(4).write(19);
                    libc::syscall(libc::SYS_sched_setattr, process, at, 0)
                }
                // The process is given by id; the priority is the lowest best-effort one.
                "ioprio" => libc::syscall(libc::SYS_ioprio_set, 1, process, (2 << 13) | 7),
                "shmctl" => libc::syscall(libc::SYS_shmctl, process, libc::IPC_STAT, at),
                "msgctl" => libc::syscall(libc::SYS_msgctl, process, libc::IPC_STAT, at),
                "msgsnd" => {
                    at.write(1);
                    libc::syscall(libc::SYS_msgsnd, process, at, 1, libc::IPC_NOWAIT)
                }
                "msgrcv" => libc::syscall(libc::SYS_msgrcv, process, at, 1, 0, libc::IPC_NOWAIT),
                "semctl" => libc::syscall(libc::SYS_semctl, process, 0, libc::IPC_STAT, at),
                "semop" => {
                    // Increments the first semaphore.
                    at.cast::<i16>().add(1).write(1);
                    libc::syscall(libc::SYS_semop, process, at, 1)
                }
                "pidfd" => {
                    let file = libc::syscall(libc::SYS_pidfd_open, process, 0);
                    libc::syscall(libc::SYS_pidfd_getfd, file, 2, 0)
                }
                #[cfg(target_arch = "x86_64")]
                "other_architecture" => {
                    // getpid in the 32-bit system call table.
                    let mut number: i64 = 20;
                    std::arch::asm!("int 0x80", inout("rax") number);
                    if number > 0 { 0 } else { -1 }
                }
                #[cfg(target_arch = "x86_64")]
                "x32" => libc::syscall(0x4000_0000 + libc::SYS_getpid),
                other => panic!("no such trial: {other}"),
            }
        }
    };
    result >= 0
}

//! Changes modes, owners and times on behalf of commands, since landlock has no rules for these. A thread does it for files
//! that the command may change.
//!
//! The kernel passes such a system call to the thread (seccomp_unotify(2)). The path is read once from the caller's memory and
//! opened. Both the permission check and the change apply to the opened file, so nothing can be swapped in between.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, chmodat, chownat, fstat, open, openat2,
    readlinkat, utimensat,
};
use rustix::io::Errno;

use super::seccomp::SYS_FCHMODAT2;

/// The longest path that Linux accepts, including its NUL.
const PATH_MAX: usize = 4096;
const AT_SYMLINK_NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
const AT_EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;

/// The files whose attributes commands may change.
#[derive(Debug, Clone, Default)]
pub(super) struct WritableRoots {
    /// Canonical folders that every command may change.
    pub(super) writable: Vec<PathBuf>,
    /// Folders that only commands may change that aren't read-only.
    pub(super) writable_unless_read_only: Vec<PathBuf>,
    /// Exceptions in these folders.
    pub(super) protected: Vec<PathBuf>,
}

/// The socket to the thread, which ends when this is dropped and all commands have ended.
#[derive(Debug)]
pub(super) struct ChmodBroker(OwnedFd);

impl ChmodBroker {
    pub(super) fn start(roots: WritableRoots) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let roots = Arc::new(roots);
        std::thread::Builder::new().name("chmod-broker".into()).spawn(move || serve(ours, &roots))?;
        Ok(Self(theirs))
    }

    /// Sends the listener of a filter to the thread. Makes only system calls, because it runs between fork and exec.
    #[allow(unsafe_code)]
    pub(super) fn send_listener(&self, listener: RawFd, read_only: bool) -> io::Result<()> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut control = Control([0; 64]);
        let mut byte = u8::from(read_only);
        let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: the message, its data and its control part outlive the call. The control part is aligned for its header and
        // larger than one descriptor needs, so the header and its data are inside it.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut data;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(listener);
            libc::sendmsg(self.0.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
        };
        if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// A filter's listener, and whether its command is read-only.
struct Listener {
    file: OwnedFd,
    read_only: bool,
}

fn serve(socket: OwnedFd, roots: &WritableRoots) {
    let mut socket = Some(socket);
    let mut listeners: Vec<Listener> = Vec::new();
    while socket.is_some() || !listeners.is_empty() {
        let mut polled: Vec<PollFd<'_>> =
            listeners.iter().map(|listener| PollFd::new(&listener.file, PollFlags::IN)).collect();
        polled.extend(socket.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let events: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        drop(polled);
        let mut events = events.into_iter();
        listeners.retain(|listener| {
            let event = events.next().unwrap_or(PollFlags::empty());
            if event.contains(PollFlags::IN) {
                handle_notification(listener, roots);
                return true;
            }
            // All processes with the filter have ended.
            event.is_empty()
        });
        if events.next().is_some_and(|event| !event.is_empty()) {
            match socket.as_ref().map(receive) {
                Some(Ok(BrokerMessage::Listener(listener))) => listeners.push(listener),
                // Only this command's calls fail.
                Some(Ok(BrokerMessage::Lost) | Err(Errno::INTR)) => {}
                Some(Ok(BrokerMessage::End) | Err(_)) | None => socket = None,
            }
        }
    }
}

/// A message to the thread.
enum BrokerMessage {
    Listener(Listener),
    /// A listener that got lost because this process has no free descriptor.
    Lost,
    End,
}

fn receive(socket: &OwnedFd) -> Result<BrokerMessage, Errno> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let mut data = [io::IoSliceMut::new(&mut byte)];
    let received = recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(BrokerMessage::End);
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(file.map_or(BrokerMessage::Lost, |file| BrokerMessage::Listener(Listener { file, read_only: byte[0] != 0 })))
}

/// Receives a system call and answers it, unless the caller has given up.
#[allow(unsafe_code)]
fn handle_notification(listener: &Listener, roots: &WritableRoots) {
    // SAFETY: all zeros is a valid value, and required by the kernel.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is a listener, and the structure outlives the call.
    if unsafe { libc::ioctl(listener.file.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call) } != 0 {
        return;
    }
    let error = match handle_call(listener, roots, &call) {
        Ok(()) => 0,
        Err(errno) => -errno.raw_os_error(),
    };
    let answer = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags: 0 };
    // SAFETY: as above.
    unsafe {
        libc::ioctl(listener.file.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw const answer);
    }
}

/// The change that a caller asks for.
enum AttributeChange {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
}

fn handle_call(listener: &Listener, roots: &WritableRoots, call: &libc::seccomp_notif) -> Result<(), Errno> {
    let caller = Caller { id: call.pid, listener: &listener.file, call: call.id };
    let [first, second, third, fourth, fifth, _] = call.data.args;
    let plain = |at: u64| FileArgument { folder: libc::AT_FDCWD, path: at, follow: true };
    let at = |folder: u64, path: u64, flags: u64| FileArgument {
        folder: folder as i32,
        path: if path == 0 || flags & AT_EMPTY_PATH != 0 && caller.path(path).is_ok_and(|path| path.is_empty()) {
            0
        } else {
            path
        },
        follow: flags & AT_SYMLINK_NOFOLLOW == 0,
    };
    let (file, change) = match i64::from(call.data.nr) {
        libc::SYS_fchmod => (at(first, 0, 0), AttributeChange::Mode(second as u32)),
        libc::SYS_fchmodat => (at(first, second, 0), AttributeChange::Mode(third as u32)),
        SYS_FCHMODAT2 => (at(first, second, fourth), AttributeChange::Mode(third as u32)),
        libc::SYS_fchown => (at(first, 0, 0), AttributeChange::Owner(second as u32, third as u32)),
        libc::SYS_fchownat => (at(first, second, fifth), AttributeChange::Owner(third as u32, fourth as u32)),
        libc::SYS_utimensat => (at(first, second, fourth), AttributeChange::Times(caller.times(third, 1)?)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (plain(first), AttributeChange::Mode(second as u32)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => (plain(first), AttributeChange::Owner(second as u32, third as u32)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => {
            (FileArgument { follow: false, ..plain(first) }, AttributeChange::Owner(second as u32, third as u32))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => (plain(first), AttributeChange::Times(caller.seconds(second)?)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => (plain(first), AttributeChange::Times(caller.times(second, 1000)?)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => (at(first, second, 0), AttributeChange::Times(caller.times(third, 1000)?)),
        _ => return Err(Errno::NOSYS),
    };
    let file = caller.open(&file)?;
    caller.check_pending()?;
    let proc_path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = PathBuf::from(OsString::from_vec(readlinkat(CWD, &proc_path, Vec::new())?.into_bytes()));
    let state = fstat(&file)?;
    // A command has no capabilities, so it could only change its own user's files.
    let is_owner = state.st_uid == rustix::process::geteuid().as_raw();
    if !roots.allows(&path, listener.read_only) || !is_owner {
        return Err(Errno::PERM);
    }
    match change {
        AttributeChange::Mode(mode) => {
            let is_folder = state.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let denied = if is_folder { libc::S_ISUID } else { libc::S_ISUID | libc::S_ISGID };
            if mode & denied != 0 {
                return Err(Errno::PERM);
            }
            chmodat(CWD, &proc_path, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        }
        AttributeChange::Owner(user, group) => {
            let same_user = user == u32::MAX || user == state.st_uid;
            if !same_user || !(group == u32::MAX || group == state.st_gid || is_group_member(group)) {
                return Err(Errno::PERM);
            }
            let group = Some(group).filter(|group| *group != u32::MAX).map(Gid::from_raw);
            chownat(CWD, &proc_path, None::<Uid>, group, AtFlags::empty())
        }
        AttributeChange::Times(times) => utimensat(CWD, &proc_path, &times, AtFlags::empty()),
    }
}

fn is_group_member(group: u32) -> bool {
    let groups = rustix::process::getgroups().unwrap_or_default();
    rustix::process::getegid().as_raw() == group || groups.iter().any(|known| known.as_raw() == group)
}

impl WritableRoots {
    fn allows(&self, path: &Path, read_only: bool) -> bool {
        let is_in = |folders: &[PathBuf]| folders.iter().any(|folder| path.starts_with(folder));
        (is_in(&self.writable) || !read_only && is_in(&self.writable_unless_read_only))
            && !self.protected.iter().any(|protected| path.starts_with(protected))
    }
}

/// A file as a system call names it.
struct FileArgument {
    folder: i32,
    /// The address of the path in the caller's memory; 0 for the folder itself.
    path: u64,
    follow: bool,
}

/// The thread that made a system call.
struct Caller<'a> {
    id: u32,
    listener: &'a OwnedFd,
    call: u64,
}

impl Caller<'_> {
    /// Fails unless the call is still pending, so that the id can't have been reused for another thread.
    #[allow(unsafe_code)]
    fn check_pending(&self) -> Result<(), Errno> {
        let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _;
        // SAFETY: the call only reads the number, which outlives it.
        match unsafe { libc::ioctl(self.listener.as_raw_fd(), request, &raw const self.call) } {
            0 => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    /// Reads the caller's memory, up to the end of the mapping.
    fn read_memory(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let memory = File::open(format!("/proc/{}/mem", self.id)).map_err(|_| Errno::PERM)?;
        self.check_pending()?;
        memory.read_at(buffer, at).map_err(|_| Errno::FAULT)
    }

    fn path(&self, at: u64) -> Result<Vec<u8>, Errno> {
        let mut path = vec![0; PATH_MAX];
        let count = self.read_memory(at, &mut path)?;
        path.truncate(count);
        let end = path.iter().position(|byte| *byte == 0).ok_or(Errno::NAMETOOLONG)?;
        path.truncate(end);
        Ok(path)
    }

    fn numbers<const COUNT: usize>(&self, at: u64) -> Result<[i64; COUNT], Errno> {
        let mut bytes = vec![0; COUNT * 8];
        if self.read_memory(at, &mut bytes)? != bytes.len() {
            return Err(Errno::FAULT);
        }
        let mut numbers =
            bytes.chunks_exact(8).map(|chunk| chunk.try_into().map(i64::from_ne_bytes).unwrap_or_default());
        Ok(std::array::from_fn(|_| numbers.next().unwrap_or_default()))
    }

    /// Reads two times, access and modification, each as seconds and a fraction; `factor` turns the fraction into nanoseconds.
    fn times(&self, at: u64, factor: i64) -> Result<Timestamps, Errno> {
        if at == 0 {
            return Ok(now());
        }
        let [access_seconds, access, change_seconds, change] = self.numbers(at)?;
        let fraction = |value: i64| value.checked_mul(factor).ok_or(Errno::INVAL);
        Ok(Timestamps {
            last_access: Timespec { tv_sec: access_seconds, tv_nsec: fraction(access)? as _ },
            last_modification: Timespec { tv_sec: change_seconds, tv_nsec: fraction(change)? as _ },
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn seconds(&self, at: u64) -> Result<Timestamps, Errno> {
        if at == 0 {
            return Ok(now());
        }
        let [access, change] = self.numbers(at)?;
        Ok(Timestamps {
            last_access: Timespec { tv_sec: access, tv_nsec: 0 },
            last_modification: Timespec { tv_sec: change, tv_nsec: 0 },
        })
    }

    /// Opens a file for its path only, as the caller would resolve it.
    fn open(&self, file: &FileArgument) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if file.path == 0 {
            return self.open_descriptor(file.folder);
        }
        let path = self.path(file.path)?;
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        // These paths mean something else in each process.
        let number = [&b"/proc/self/fd/"[..], b"/proc/thread-self/fd/", b"/dev/fd/"]
            .iter()
            .find_map(|folder| std::str::from_utf8(path.strip_prefix(*folder)?).ok()?.parse().ok());
        if let Some(number) = number {
            return self.open_descriptor(number);
        }
        let base = if path[0] == b'/' {
            None
        } else if file.folder == libc::AT_FDCWD {
            Some(open(format!("/proc/{}/cwd", self.id), flags, Mode::empty())?)
        } else {
            Some(self.open_descriptor(file.folder)?)
        };
        self.check_pending()?;
        let flags = if file.follow { flags } else { flags | OFlags::NOFOLLOW };
        let folder = base.as_ref().map_or(CWD, AsFd::as_fd);
        openat2(folder, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
    }

    fn open_descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number == libc::AT_FDCWD {
            return open(format!("/proc/{}/cwd", self.id), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        }
        let name = format!("/proc/{}/fd/{number}", self.id);
        let file = open(name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|_| Errno::BADF)?;
        self.check_pending()?;
        Ok(file)
    }
}

fn now() -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW as _ };
    Timestamps { last_access: now, last_modification: now }
}

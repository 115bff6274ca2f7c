//! Changes of modes, owners and times, which landlock has no rules for: a thread makes them in a command's stead, beneath
//! what the command may change.
//!
//! The kernel hands such a call over (seccomp_unotify(2)). The path is read once from the caller's memory, opened, and
//! judged by what was opened; the change is made to that, so nothing can be swapped in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, chmodat, chownat, fstat, open,
    openat2, readlinkat, utimensat,
};
use rustix::io::Errno;

use super::seccomp::SYS_FCHMODAT2;

/// The longest path, with its NUL, as Linux takes it.
const PATH_MAX: usize = 4096;
const AT_SYMLINK_NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
const AT_EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;

/// Where commands may change modes, owners and times.
#[derive(Debug, Clone, Default)]
pub(super) struct WritableRoots {
    /// Folders, canonical.
    pub(super) writable: Vec<PathBuf>,
    /// Those that only commands may change which aren't read-only.
    pub(super) writable_unless_read_only: Vec<PathBuf>,
    /// What stays as it is in them.
    pub(super) protected: Vec<PathBuf>,
}

/// The thread's end of the line. It ends when this and all commands are gone.
#[derive(Debug)]
pub(super) struct ChmodBroker(OwnedFd);

impl ChmodBroker {
    pub(super) fn start(ground: WritableRoots) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let ground = Arc::new(ground);
        std::thread::Builder::new().name("attendant".into()).spawn(move || serve(ours, &ground))?;
        Ok(Self(theirs))
    }

    /// Hands over the listener of a filter. Only system calls: it runs between fork and exec.
    #[allow(unsafe_code)]
    pub(super) fn send_listener(&self, listener: RawFd, read_only: bool) -> io::Result<()> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut control = Control([0; 64]);
        let mut word = u8::from(read_only);
        let mut data = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 1 };
        // SAFETY: the message, its data and its control part outlive the call. The control part is aligned for its header
        // and larger than the room for one descriptor, so the header and its data lie within it.
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

/// A filter's listener, and whether its command may change the workspace.
struct Listener {
    file: OwnedFd,
    read_only: bool,
}

fn serve(line: OwnedFd, ground: &WritableRoots) {
    let mut line = Some(line);
    let mut listeners: Vec<Listener> = Vec::new();
    while line.is_some() || !listeners.is_empty() {
        let mut waited: Vec<PollFd<'_>> =
            listeners.iter().map(|listener| PollFd::new(&listener.file, PollFlags::IN)).collect();
        waited.extend(line.iter().map(|line| PollFd::new(line, PollFlags::IN)));
        match poll(&mut waited, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let events: Vec<PollFlags> = waited.iter().map(PollFd::revents).collect();
        drop(waited);
        let mut events = events.into_iter();
        listeners.retain(|listener| {
            let event = events.next().unwrap_or(PollFlags::empty());
            if event.contains(PollFlags::IN) {
                handle_notification(listener, ground);
                return true;
            }
            // All who had the filter are gone.
            event.is_empty()
        });
        if events.next().is_some_and(|event| !event.is_empty()) {
            match line.as_ref().map(receive) {
                Some(Ok(BrokerMessage::Listener(listener))) => listeners.push(listener),
                // Its calls fail, and nobody else's.
                Some(Ok(BrokerMessage::Lost) | Err(Errno::INTR)) => {}
                Some(Ok(BrokerMessage::End) | Err(_)) | None => line = None,
            }
        }
    }
}

/// What comes over the line.
enum BrokerMessage {
    Listener(Listener),
    /// A listener for which this process had no descriptor left.
    Lost,
    End,
}

fn receive(line: &OwnedFd) -> Result<BrokerMessage, Errno> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 1];
    let mut data = [io::IoSliceMut::new(&mut word)];
    let received = recvmsg(line, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(BrokerMessage::End);
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(file.map_or(BrokerMessage::Lost, |file| BrokerMessage::Listener(Listener { file, read_only: word[0] != 0 })))
}

/// Takes a call and answers it. One that was given up meanwhile is passed over.
#[allow(unsafe_code)]
fn handle_notification(listener: &Listener, ground: &WritableRoots) {
    // SAFETY: all-zero is a valid value, and what the kernel asks for.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the listener is one, and the structure outlives the call.
    if unsafe { libc::ioctl(listener.file.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call) } != 0 {
        return;
    }
    let error = match handle_call(listener, ground, &call) {
        Ok(()) => 0,
        Err(errno) => -errno.raw_os_error(),
    };
    let answer = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags: 0 };
    // SAFETY: as above.
    unsafe {
        libc::ioctl(listener.file.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw const answer);
    }
}

/// What is to be changed.
enum AttributeChange {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
}

fn handle_call(listener: &Listener, ground: &WritableRoots, call: &libc::seccomp_notif) -> Result<(), Errno> {
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
    let (place, wish) = match i64::from(call.data.nr) {
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
    let file = caller.open(&place)?;
    caller.check_pending()?;
    let seen =
        PathBuf::from(std::ffi::OsString::from_vec(readlinkat(CWD, proc_fd_path(&file), Vec::new())?.into_bytes()));
    let state = fstat(&file)?;
    if !ground.allows(&seen, listener.read_only) || !can_change_attributes(&state) {
        return Err(Errno::PERM);
    }
    let own = proc_fd_path(&file);
    match wish {
        AttributeChange::Mode(mode) => {
            let folder = state.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let lends = if folder { libc::S_ISUID } else { libc::S_ISUID | libc::S_ISGID };
            if mode & lends != 0 {
                return Err(Errno::PERM);
            }
            chmodat(CWD, &own, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        }
        AttributeChange::Owner(user, group) => {
            let same_user = user == u32::MAX || user == state.st_uid;
            if !same_user || !(group == u32::MAX || group == state.st_gid || is_group_member(group)) {
                return Err(Errno::PERM);
            }
            let group = Some(group).filter(|group| *group != u32::MAX).map(Gid::from_raw);
            chownat(CWD, &own, None::<Uid>, group, AtFlags::empty())
        }
        AttributeChange::Times(times) => utimensat(CWD, &own, &times, AtFlags::empty()),
    }
}

/// The name by which this process reaches what it has open.
fn proc_fd_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Whether a command, which has no capabilities, could change a file's attributes itself.
fn can_change_attributes(state: &Stat) -> bool {
    state.st_uid == rustix::process::geteuid().as_raw()
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

/// A file as a call names it.
struct FileArgument {
    folder: i32,
    /// Where the path is in the caller's memory; 0 where the folder itself is meant.
    path: u64,
    follow: bool,
}

/// Who made a call, by the thread's id.
struct Caller<'a> {
    id: u32,
    listener: &'a OwnedFd,
    call: u64,
}

impl Caller<'_> {
    /// Whether the thread is still the one that made the call, and not another with its number.
    #[allow(unsafe_code)]
    fn check_pending(&self) -> Result<(), Errno> {
        let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _;
        // SAFETY: the number outlives the call, which only reads it.
        match unsafe { libc::ioctl(self.listener.as_raw_fd(), request, &raw const self.call) } {
            0 => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    /// What lies in its memory, up to the end of what is mapped.
    fn read_memory(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let memory = File::open(format!("/proc/{}/mem", self.id)).map_err(|_| Errno::PERM)?;
        self.check_pending()?;
        // A read ends where a page isn't there.
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

    /// Access and change: seconds and a fraction each, which is of nanoseconds after the factor.
    fn times(&self, at: u64, factor: i64) -> Result<Timestamps, Errno> {
        if at == 0 {
            return Ok(now());
        }
        let [access_seconds, access, change_seconds, change] = self.numbers(at)?;
        // Only the newest form knows the two special values of UTIME_NOW and UTIME_OMIT.
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

    /// Opens a file without reading it, as the caller would find it.
    fn open(&self, place: &FileArgument) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if place.path == 0 {
            return self.open_descriptor(place.folder);
        }
        let path = self.path(place.path)?;
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        // These lead each process to its own.
        let number = [&b"/proc/self/fd/"[..], b"/proc/thread-self/fd/", b"/dev/fd/"]
            .iter()
            .find_map(|folder| std::str::from_utf8(path.strip_prefix(*folder)?).ok()?.parse().ok());
        if let Some(number) = number {
            return self.open_descriptor(number);
        }
        let base = if path[0] == b'/' {
            None
        } else if place.folder == libc::AT_FDCWD {
            Some(open(format!("/proc/{}/cwd", self.id), flags, Mode::empty())?)
        } else {
            Some(self.open_descriptor(place.folder)?)
        };
        self.check_pending()?;
        let flags = if place.follow { flags } else { flags | OFlags::NOFOLLOW };
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

/// Takes a descriptor that a system call gave.
#[allow(unsafe_code)]
pub(super) fn taken(number: RawFd) -> OwnedFd {
    // SAFETY: the caller got it from the kernel just now, so it is nobody else's.
    unsafe { OwnedFd::from_raw_fd(number) }
}

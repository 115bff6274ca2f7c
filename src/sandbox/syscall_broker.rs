//! Makes system calls on behalf of commands: changes of modes, owners and times, since landlock has no rules for these, and
//! connections, which lead to the command's proxy or nowhere. A thread does it for files that the command may change.
//!
//! The kernel passes such a system call to the thread (seccomp_unotify(2)). The path is read once from the caller's memory and
//! opened. Both the permission check and the change apply to the opened file, so nothing can be swapped in between. The same is
//! true of the address of a connection: the caller gets a socket that was connected here, and its own never connects.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, chmodat, chownat, fstat, open, openat2,
    readlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::object_stage::GuardedFiles;
use super::seccomp::SYS_FCHMODAT2;
use crate::egress::ProxyDoor;
use crate::sync::IgnorePoison;
use crate::workspace::open_beneath::file_id;

/// The longest path that Linux accepts, including its NUL.
const PATH_MAX: usize = 4096;
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const AT_SYMLINK_NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
const AT_EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;

/// The files whose attributes commands may change.
#[derive(Debug)]
pub(super) struct WritableRoots {
    /// The folder that every command may change, canonical.
    pub(super) home: PathBuf,
    /// Folders that only commands may change that aren't read-only, canonical.
    pub(super) writable: Vec<PathBuf>,
    /// Exceptions in these folders.
    pub(super) protected: Vec<PathBuf>,
    /// Exceptions wherever they are: another name of such a file may be in any of these folders.
    pub(super) guarded: GuardedFiles,
}

/// The socket to the thread, which ends when this is dropped and all commands have ended.
#[derive(Debug)]
pub(super) struct SyscallBroker {
    socket: OwnedFd,
    doors: Arc<Doors>,
}

/// The proxies of commands by their number. Numbers start at 1.
#[derive(Debug, Default)]
struct Doors(Mutex<(u64, HashMap<u64, Weak<ProxyDoor>>)>);

/// The number of a command that has no proxy.
pub(super) const NO_DOOR: u64 = 0;

impl SyscallBroker {
    pub(super) fn start(roots: WritableRoots) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let roots = Arc::new(roots);
        let doors = Arc::<Doors>::default();
        let known = Arc::clone(&doors);
        std::thread::Builder::new().name("syscall-broker".into()).spawn(move || serve(&ours, &roots, &known))?;
        Ok(Self { socket: theirs, doors })
    }

    /// Gives a proxy a number, for as long as the proxy lives.
    pub(super) fn add_door(&self, door: &Arc<ProxyDoor>) -> u64 {
        let (last, doors) = &mut *self.doors.0.lock().ignore_poison();
        doors.retain(|_, door| door.strong_count() > 0);
        *last += 1;
        doors.insert(*last, Arc::downgrade(door));
        *last
    }

    /// Sends the listener of a filter to the thread. Makes only system calls, because it runs between fork and exec.
    pub(super) fn send_listener(&self, listener: &OwnedFd, read_only: bool, door: u64) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let listener = [listener.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&listener));
        let (read_only, door) = ([u8::from(read_only)], door.to_ne_bytes());
        sendmsg(&self.socket, &[IoSlice::new(&read_only), IoSlice::new(&door)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// A filter's listener, whether its command is read-only, and its proxy.
struct Listener {
    file: OwnedFd,
    read_only: bool,
    door: Option<Arc<ProxyDoor>>,
}

/// Starts a thread for each listener, until this program and all commands have closed their ends of the socket.
fn serve(socket: &OwnedFd, roots: &Arc<WritableRoots>, doors: &Doors) {
    loop {
        match receive(socket, doors) {
            Ok(Some(listener)) => {
                let roots = Arc::clone(roots);
                // If this fails, only this command's calls fail.
                let thread = std::thread::Builder::new().name("syscall-broker".into());
                let _ = thread.spawn(move || listener.serve(&roots));
            }
            // A listener got lost because this process has no free descriptor.
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn receive(socket: &OwnedFd, doors: &Doors) -> Result<Option<Listener>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (mut read_only, mut door) = ([0; 1], [0; 8]);
    let mut parts = [IoSliceMut::new(&mut read_only), IoSliceMut::new(&mut door)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(Errno::PIPE);
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let door = doors.0.lock().ignore_poison().1.get(&u64::from_ne_bytes(door)).and_then(Weak::upgrade);
    Ok(file.map(|file| Listener { file, read_only: read_only[0] != 0, door }))
}

impl Listener {
    /// Answers system calls until all processes with the filter have ended.
    fn serve(&self, roots: &WritableRoots) {
        loop {
            let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) if polled[0].revents().contains(PollFlags::IN) => handle_notification(self, roots),
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
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
    if i64::from(call.data.nr) == libc::SYS_connect {
        return connect(&caller, listener.door.as_deref(), call);
    }
    let [first, second, third, fourth, fifth, _] = call.data.args;
    let plain = |at: u64| FileArgument { folder: libc::AT_FDCWD, path: at, follow: true };
    let at = |folder: u64, path: u64, flags: u64| {
        let is_empty = flags & AT_EMPTY_PATH != 0 && caller.path(path).is_ok_and(|path| path.is_empty());
        let path = if is_empty { 0 } else { path };
        FileArgument { folder: folder as i32, path, follow: flags & AT_SYMLINK_NOFOLLOW == 0 }
    };
    let mode = |mode: u64| AttributeChange::Mode(mode as u32);
    let owner = |user: u64, group: u64| AttributeChange::Owner(user as u32, group as u32);
    let (file, change) = match i64::from(call.data.nr) {
        libc::SYS_fchmod => (at(first, 0, 0), mode(second)),
        libc::SYS_fchmodat => (at(first, second, 0), mode(third)),
        SYS_FCHMODAT2 => (at(first, second, fourth), mode(third)),
        libc::SYS_fchown => (at(first, 0, 0), owner(second, third)),
        libc::SYS_fchownat => (at(first, second, fifth), owner(third, fourth)),
        libc::SYS_utimensat => (at(first, second, fourth), AttributeChange::Times(caller.times(third, 1)?)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (plain(first), mode(second)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => (plain(first), owner(second, third)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => (FileArgument { follow: false, ..plain(first) }, owner(second, third)),
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
    let is_change = !matches!(change, AttributeChange::Times(_));
    if !roots.allows(&path, listener.read_only) || !is_owner || is_change && roots.guarded.contains(file_id(&state)) {
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

/// Puts a connection to the command's proxy in the place of the caller's socket, if that is where it wants to connect to.
#[allow(unsafe_code)]
fn connect(caller: &Caller<'_>, door: Option<&ProxyDoor>, call: &libc::seccomp_notif) -> Result<(), Errno> {
    let [socket, address, length, ..] = call.data.args;
    let mut bytes = [0; size_of::<libc::sockaddr_in6>()];
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    let read = caller.read_memory(address, &mut bytes[..length])?;
    let (door, address) = (door.ok_or(Errno::ACCESS)?, socket_address(&bytes[..read]).ok_or(Errno::ACCESS)?);
    if address != SocketAddr::from(door.address()) {
        door.refuse(address);
        return Err(Errno::ACCESS);
    }
    let flags = caller.descriptor_flags(socket as i32)?;
    let connection = door.connect().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::CONNREFUSED))?;
    if flags & libc::O_NONBLOCK != 0 {
        connection.set_nonblocking(true).map_err(|_| Errno::IO)?;
    }
    let add = libc::seccomp_notif_addfd {
        id: call.id,
        flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
        srcfd: connection.as_raw_fd().cast_unsigned(),
        newfd: socket as u32,
        newfd_flags: (flags & libc::O_CLOEXEC).cast_unsigned(),
    };
    let request = libc::SECCOMP_IOCTL_NOTIF_ADDFD as _;
    // SAFETY: the descriptor is a listener, and the structure, which the call only reads, outlives it.
    match unsafe { libc::ioctl(caller.listener.as_raw_fd(), request, &raw const add) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// An address of the internet as connect(2) gets it.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match family {
        libc::AF_INET => {
            let address: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::from((address, port)))
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::from((address, port)))
        }
        _ => None,
    }
}

fn is_group_member(group: u32) -> bool {
    let groups = rustix::process::getgroups().unwrap_or_default();
    rustix::process::getegid().as_raw() == group || groups.iter().any(|known| known.as_raw() == group)
}

impl WritableRoots {
    fn allows(&self, path: &Path, read_only: bool) -> bool {
        let is_in = |folders: &[PathBuf]| folders.iter().any(|folder| path.starts_with(folder));
        (path.starts_with(&self.home) || !read_only && is_in(&self.writable)) && !is_in(&self.protected)
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

    /// The flags of an open descriptor, see proc_pid_fdinfo(5).
    fn descriptor_flags(&self, number: i32) -> Result<i32, Errno> {
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{number}", self.id)).map_err(|_| Errno::BADF)?;
        self.check_pending()?;
        let flags = text.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        flags.ok_or(Errno::BADF)
    }

    fn path(&self, at: u64) -> Result<Vec<u8>, Errno> {
        let mut path = vec![0; PATH_MAX];
        let count = self.read_memory(at, &mut path)?;
        path.truncate(path[..count].iter().position(|byte| *byte == 0).ok_or(Errno::NAMETOOLONG)?);
        Ok(path)
    }

    fn numbers<const COUNT: usize>(&self, at: u64) -> Result<[i64; COUNT], Errno> {
        let mut bytes = [[0; 8]; COUNT];
        match self.read_memory(at, bytes.as_flattened_mut())? {
            count if count == COUNT * 8 => Ok(bytes.map(i64::from_ne_bytes)),
            _ => Err(Errno::FAULT),
        }
    }

    /// Reads two times, access and modification, each as seconds and a fraction; `factor` turns the fraction into nanoseconds.
    fn times(&self, at: u64, factor: i64) -> Result<Timestamps, Errno> {
        if at == 0 {
            return Ok(timestamps([0, libc::UTIME_NOW, 0, libc::UTIME_NOW]));
        }
        let [access_seconds, access, change_seconds, change] = self.numbers(at)?;
        let fraction = |value: i64| value.checked_mul(factor).ok_or(Errno::INVAL);
        Ok(timestamps([access_seconds, fraction(access)?, change_seconds, fraction(change)?]))
    }

    /// Reads the same two times as seconds only.
    #[cfg(target_arch = "x86_64")]
    fn seconds(&self, at: u64) -> Result<Timestamps, Errno> {
        if at == 0 {
            return self.times(0, 1);
        }
        let [access, change] = self.numbers(at)?;
        Ok(timestamps([access, 0, change, 0]))
    }

    /// Opens a file for its path only, as the caller would resolve it.
    fn open(&self, file: &FileArgument) -> Result<OwnedFd, Errno> {
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
        let flags = if file.follow { PATH_FLAGS } else { PATH_FLAGS | OFlags::NOFOLLOW };
        let open_in = |folder| openat2(folder, &path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        match path[0] {
            b'/' => open_in(CWD),
            _ => open_in(self.open_descriptor(file.folder)?.as_fd()),
        }
    }

    fn open_descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        let name = match number {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.id),
            _ => format!("/proc/{}/fd/{number}", self.id),
        };
        let file = open(name, PATH_FLAGS, Mode::empty()).map_err(|_| Errno::BADF)?;
        self.check_pending()?;
        Ok(file)
    }
}

fn timestamps([access_seconds, access, change_seconds, change]: [i64; 4]) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: access_seconds, tv_nsec: access as _ },
        last_modification: Timespec { tv_sec: change_seconds, tv_nsec: change as _ },
    }
}

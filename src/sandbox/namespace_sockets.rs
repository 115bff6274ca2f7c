//! Sockets in the network namespace of a command that waits to be started: where it looks up names, and where its connections
//! arrive. No program runs in the namespace for that: a process joins it from outside, makes the sockets and passes them on.
//!
//! That process is a copy of this program that never executes another, and ends after a millisecond. Nothing in it may allocate,
//! lock or panic: only system calls are made.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, bind, listen, recvmsg, sendmsg, socket_with, socketpair, sockopt,
};
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::supervisor::{all_signals, block_signals};

/// See ioctl_ns(2).
const NS_GET_USERNS: libc::c_ulong = 0xb701;
/// How many connections wait to be accepted.
const BACKLOG: i32 = 128;
/// The port of name servers.
const DNS_PORT: u16 = 53;
/// What the process sends in place of a port, with the number of an error.
const FAILED: u16 = 0;

/// Sockets in a namespace.
#[derive(Debug)]
pub(super) struct NamespaceSockets {
    pub(super) lookups: UdpSocket,
    pub(super) listeners: Vec<(u16, TcpListener)>,
    /// The process that has made them. It has nothing left to do but to end, which the command needn't wait for.
    pub(super) helper: Helper,
}

/// A process that is reaped on drop.
#[derive(Debug)]
pub(super) struct Helper(i32);

impl Drop for Helper {
    fn drop(&mut self) {
        reap(self.0);
    }
}

/// Makes the sockets in the namespaces of `process`: one for lookups, and a listener for each port.
///
/// # Errors
/// The system doesn't allow it.
pub(super) fn open_in(process: Pid, ports: &[u16]) -> io::Result<NamespaceSockets> {
    let path = format!("/proc/{}/ns/net", process.as_raw_nonzero());
    let network = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let user = owner_of(&network)?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let helper = Helper(fork_helper(&ours, &theirs, || make_sockets(&theirs, &user, &network, ports))?);
    drop(theirs);
    let received = receive_all(&ours, ports);
    // After an error, it ends because it can't send.
    drop(ours);
    let (lookups, listeners) = received?;
    Ok(NamespaceSockets { lookups, listeners, helper })
}

/// The user namespace that a network namespace belongs to.
#[allow(unsafe_code)]
fn owner_of(network: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument, and returns a new descriptor, which is closed on exec.
    match unsafe { libc::ioctl(network.as_raw_fd(), NS_GET_USERNS as _) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: nothing else owns the new descriptor.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

/// Starts the process. It sends no signal when it ends, so nothing else that waits for children finds it.
#[allow(unsafe_code)]
fn fork_helper(ours: &OwnedFd, theirs: &OwnedFd, make: impl FnOnce() -> Result<(), Errno>) -> io::Result<i32> {
    let before = block_signals(&all_signals())?;
    // SAFETY: no memory is shared, and the child continues on a copy of this stack. It only makes system calls, and doesn't
    // return from here.
    let process = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if process == 0 {
        // Otherwise it would wait for itself if this program is killed.
        // SAFETY: the child uses only its other end, and never returns to code that uses this one.
        unsafe {
            libc::close(ours.as_raw_fd());
        }
        let code = match make() {
            Ok(()) => 0,
            Err(error) => {
                let _ = send(theirs, FAILED, error.raw_os_error(), None);
                1
            }
        };
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(code) }
    }
    let result = if process < 0 { Err(io::Error::last_os_error()) } else { Ok(process as i32) };
    block_signals(&before)?;
    result
}

/// Waits for the end of the process.
#[allow(unsafe_code)]
fn reap(helper: i32) {
    loop {
        // SAFETY: the call writes nothing.
        let ended = unsafe { libc::waitpid(helper, std::ptr::null_mut(), libc::__WALL) };
        if ended >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// The process: joins the namespaces, makes the sockets and sends them.
fn make_sockets(to: &OwnedFd, user: &OwnedFd, network: &OwnedFd, ports: &[u16]) -> Result<(), Errno> {
    // Joining gives all capabilities there, and takes away those elsewhere.
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    add_address()?;
    // On every address: those of the loopback interface may not be there yet.
    let everywhere = |port: u16| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let lookups = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    bind(&lookups, &everywhere(DNS_PORT))?;
    send(to, DNS_PORT, 0, Some(lookups.as_fd()))?;
    for port in ports {
        let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        bind(&listener, &everywhere(*port))?;
        listen(&listener, BACKLOG)?;
        send(to, *port, 0, Some(listener.as_fd()))?;
    }
    Ok(())
}

/// Gives the loopback interface one more address. With its usual one alone, lookups that ask for addresses of configured kinds
/// find none.
fn add_address() -> Result<(), Errno> {
    const LOOPBACK: u8 = 1;
    const ADDRESS: [u8; 4] = [127, 13, 255, 254];
    const RTM_NEWADDR: u16 = 20;
    // NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE.
    const FLAGS: u16 = 0x405;
    const RT_SCOPE_HOST: u8 = 254;
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let mut message = [0_u8; 40];
    message[0..4].copy_from_slice(&40_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWADDR.to_ne_bytes());
    message[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
    message[16..24].copy_from_slice(&[libc::AF_INET as u8, 32, 0, RT_SCOPE_HOST, 0, 0, 0, 0]);
    message[20..24].copy_from_slice(&u32::from(LOOPBACK).to_ne_bytes());
    for (at, kind) in [(24, IFA_LOCAL), (32, IFA_ADDRESS)] {
        message[at..at + 2].copy_from_slice(&8_u16.to_ne_bytes());
        message[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        message[at + 4..at + 8].copy_from_slice(&ADDRESS);
    }
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&kernel, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (length, _) = rustix::net::recv(&kernel, &mut answer, RecvFlags::empty())?;
    let error = answer.get(16..20).filter(|_| length >= 20).map(|error| [error[0], error[1], error[2], error[3]]);
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) if -error == libc::EEXIST => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error)),
        None => Err(Errno::IO),
    }
}

/// Sends a port, or an error, with a socket.
fn send(to: &OwnedFd, port: u16, error: i32, socket: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.unwrap_or_else(|| to.as_fd())];
    if socket.is_some() {
        control.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    let (port, error) = (port.to_ne_bytes(), error.to_ne_bytes());
    sendmsg(to, &[IoSlice::new(&port), IoSlice::new(&error)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_all(from: &OwnedFd, ports: &[u16]) -> io::Result<(UdpSocket, Vec<(u16, TcpListener)>)> {
    let lookups = UdpSocket::from(receive(from, DNS_PORT)?);
    let listeners = ports.iter().map(|port| Ok((*port, TcpListener::from(receive(from, *port)?))));
    Ok((lookups, listeners.collect::<io::Result<_>>()?))
}

fn receive(from: &OwnedFd, port: u16) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (mut sent_port, mut error) = ([0; 2], [0; 4]);
    let mut parts = [IoSliceMut::new(&mut sent_port), IoSliceMut::new(&mut error)];
    let received = loop {
        match recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    match (received.bytes, u16::from_ne_bytes(sent_port), socket) {
        (6, sent, Some(socket)) if sent == port => Ok(socket),
        (6, FAILED, None) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
        _ => Err(io::Error::other("the process that makes the sockets has ended")),
    }
}

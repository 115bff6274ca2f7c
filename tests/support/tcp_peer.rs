//! A TCP peer that doesn't speak HTTP.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::body_dump::{self, What};

/// The first byte of a TLS handshake, which no request starts with.
const TLS_HANDSHAKE_BYTE: u8 = 22;

/// What it does with a connection.
#[derive(Clone, Copy)]
pub(crate) enum PeerBehaviour {
    /// Reads nothing, sends nothing, and keeps it open.
    Silent,
    /// Closes it with unread data, which the other side sees as a reset.
    Reset,
    /// Reads the request and closes the connection normally.
    Close,
}

/// A listener on a loopback port, until it is dropped.
pub(crate) struct TcpPeer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
}

impl TcpPeer {
    pub(crate) fn start(behaviour: PeerBehaviour) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the port's number");
        let connections = Arc::new(AtomicUsize::new(0));
        let stopping = Arc::new(AtomicBool::new(false));
        let (counted, stopped) = (Arc::clone(&connections), Arc::clone(&stopping));
        let test = body_dump::test();
        thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let mut first = [0];
                match behaviour {
                    PeerBehaviour::Silent => kept.push(stream),
                    // A client whose connection was closed probes for TLS at the end.
                    _ if stream.peek(&mut first).is_ok() && first[0] == TLS_HANDSHAKE_BYTE => continue,
                    PeerBehaviour::Reset => {}
                    PeerBehaviour::Close => {
                        let mut buffer = [0; 64 << 10];
                        let length = stream.read(&mut buffer).unwrap_or_default();
                        dump_request(&buffer[..length], &test);
                    }
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, connections, stopping }
    }

    /// The base address, as `ANTHROPIC_BASE_URL` takes it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until there have been this many connections. Fails the test after a timeout, or if there are more.
    pub(crate) fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(180);
        while self.connections.load(Ordering::SeqCst) < count && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(self.connections.load(Ordering::SeqCst), count, "connections");
    }
}

impl Drop for TcpPeer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Keeps the body of a request of our own client that was read by hand, if all of it is there.
pub(super) fn dump_request(bytes: &[u8], test: &str) {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return };
    let (head, body) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 4..]);
    let header = |name: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    };
    let is_whole = header("content-length").and_then(|length| length.parse().ok()) == Some(body.len());
    if is_whole && body_dump::is_ours(header("user-agent")) {
        let path = head.split(' ').nth(1).unwrap_or_default();
        body_dump::keep(What::Request, &body_dump::Origin { path, test, novel: &[] }, body);
    }
}

/// A loopback port that refuses connections, and that no other test gets until this is dropped.
pub(crate) struct ClosedPort {
    _socket: OwnedFd,
    address: SocketAddr,
}

impl ClosedPort {
    pub(crate) fn hold() -> Self {
        use rustix::io::{FdFlags, fcntl_setfd};
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        fcntl_setfd(&socket, FdFlags::CLOEXEC).expect("a flag of the socket");
        // It is bound and doesn't listen.
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a loopback port");
        let address = getsockname(&socket).ok().and_then(|address| SocketAddr::try_from(address).ok());
        Self { address: address.expect("the port's number"), _socket: socket }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

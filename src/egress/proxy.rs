//! A proxy in this process, for commands without a network namespace. They name the host that they want to reach, as they would
//! to any other proxy: by CONNECT, by a whole address, or by SOCKS5.

use std::collections::HashSet;
use std::io;
#[cfg(target_os = "linux")]
use std::net::TcpStream as StdStream;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener as StdListener};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
#[cfg(target_os = "linux")]
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect as connect_socket, getsockname, socket_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::client_hello::FIRST_BYTES_TIMEOUT;
use super::connector::connect;
use super::egress::CallEgress;
use super::http_host::{self, Input, TargetForm, check_head, connect_target, pass_one, proxied_host};
use super::names::HostName;
use super::refused_reason::RefusedReason;
use super::serving::{Arrival, Serving, acquire_slot, serve_named};
use crate::sync::IgnorePoison;

/// See RFC 1928.
const SOCKS5: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const BY_NAME: u8 = 3;
const BY_IPV4: u8 = 1;
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const NOT_SUPPORTED: u8 = 7;

/// Who can use a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyUsers {
    /// Only connections that the door itself has made.
    Door,
    /// Every program on this machine that knows the port.
    Everybody,
}

/// The way to the proxy of one command.
#[derive(Debug)]
pub struct ProxyDoor {
    address: SocketAddrV4,
    call: CallEgress,
    users: ProxyUsers,
    /// The connections that were made here and not accepted yet.
    expected: Mutex<HashSet<SocketAddr>>,
}

impl ProxyDoor {
    /// Where the proxy is.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The variables by which programs find the proxy.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let address = format!("http://{}", self.address);
        let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
        let proxies = names.map(|name| (name, address.clone()));
        let others = [("no_proxy", ""), ("NO_PROXY", ""), ("NODE_USE_ENV_PROXY", "1")];
        proxies.into_iter().chain(others.map(|(name, value)| (name, value.to_owned()))).collect()
    }

    /// A connection to the proxy.
    ///
    /// # Errors
    /// The system refuses it.
    #[cfg(target_os = "linux")]
    pub fn connect(&self) -> io::Result<StdStream> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let own = SocketAddr::try_from(getsockname(&socket)?)?;
        self.expected.lock().ignore_poison().insert(own);
        match connect_socket(&socket, &self.address) {
            Ok(()) => Ok(socket.into()),
            Err(error) => {
                self.expected.lock().ignore_poison().remove(&own);
                Err(error.into())
            }
        }
    }

    /// Counts a connection to an address that isn't the proxy.
    pub fn refuse(&self, address: SocketAddr) {
        self.call.refuse(&address.ip().to_string(), Some(address.port()), RefusedReason::Address);
    }

    fn admits(&self, peer: &SocketAddr) -> bool {
        self.expected.lock().ignore_poison().remove(peer) || self.users == ProxyUsers::Everybody
    }
}

/// The proxy of one command, which isn't served yet.
#[derive(Debug)]
pub struct ProxyListener {
    listener: StdListener,
    door: Arc<ProxyDoor>,
}

impl CallEgress {
    /// A proxy for one command.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn proxy(&self, users: ProxyUsers) -> io::Result<ProxyListener> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
        let door = ProxyDoor { address, call: self.clone(), users, expected: Mutex::default() };
        Ok(ProxyListener { listener, door: Arc::new(door) })
    }
}

impl ProxyListener {
    /// The way to it.
    pub fn door(&self) -> &Arc<ProxyDoor> {
        &self.door
    }

    /// Serves it on a thread of its own.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn serve(self) -> io::Result<Serving> {
        let Self { listener, door } = self;
        let call = door.call.clone();
        let serve = move |arrival: Arrival| {
            let Arrival { call, stream, ended, .. } = arrival;
            let is_admitted = stream.peer_addr().is_ok_and(|peer| door.admits(&peer));
            let serve = async move {
                if is_admitted {
                    proxied(&call, stream, &ended).await;
                }
            };
            serve.boxed()
        };
        call.serve_listener(listener, Arc::new(serve))
    }
}

/// One connection to the proxy.
async fn proxied(call: &CallEgress, mut stream: TcpStream, ended: &CancellationToken) {
    let first = tokio::time::timeout(FIRST_BYTES_TIMEOUT, stream.read_u8()).await;
    match first {
        Ok(Ok(SOCKS5)) => socks(call, stream, ended).await,
        Ok(Ok(first)) => http(call, stream, first, ended).await,
        _ => {}
    }
}

/// Whether a host may be reached. If not, that is counted.
fn check(call: &CallEgress, host: &str, port: u16) -> Result<HostName, RefusedReason> {
    use super::names::NameErrorKind::Address;
    let result = match HostName::parse(host.strip_suffix('.').unwrap_or(host)) {
        Ok(name) => call.list().allows(&name, port).map(|()| name),
        Err(error) if error.kind == Address => Err(RefusedReason::Address),
        Err(_) => Err(RefusedReason::NotListed),
    };
    result.inspect_err(|reason| call.refuse(host, Some(port), *reason))
}

async fn http(call: &CallEgress, mut stream: TcpStream, first: u8, ended: &CancellationToken) {
    let mut input = Input { bytes: vec![first] };
    let head = tokio::time::timeout(FIRST_BYTES_TIMEOUT, input.head(&mut stream)).await;
    let Ok(Ok(Some(head))) = head else { return };
    let tunnel = connect_target(&head);
    let target = tunnel.clone().or_else(|| proxied_host(&head));
    let Some((host, port)) = target else {
        http_host::refuse(&mut stream, "this proxy", RefusedReason::NotHttp).await;
        return;
    };
    let name = match check(call, &host, port) {
        Ok(name) => name,
        Err(reason) => {
            http_host::refuse(&mut stream, &host, reason).await;
            return;
        }
    };
    if tunnel.is_some() {
        if stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
            serve_named(call, (&name, port), stream, input.bytes, ended).await;
        }
        return;
    }
    if let Err(reason) = one_request(call, (&name, port), &mut stream, &head, &mut input, ended).await {
        call.refuse(name.as_str(), Some(port), reason);
    }
}

/// A request with a whole address.
async fn one_request(
    call: &CallEgress,
    (host, port): (&HostName, u16),
    stream: &mut TcpStream,
    head: &[u8],
    input: &mut Input,
    ended: &CancellationToken,
) -> Result<(), RefusedReason> {
    let connection = async {
        let slot = acquire_slot(call).await?;
        let head = check_head(head, host, port, TargetForm::Proxy)?;
        Ok((slot, head, connect(call.egress(), host, port).await?))
    };
    let (_slot, head, mut server) = match connection.await {
        Ok(connection) => connection,
        Err(reason) => return Err(http_host::refuse(stream, host.as_str(), reason).await),
    };
    let account = Account::open(call, host, port);
    pass_one(stream, &mut server, &head, input, &account, ended).await
}

async fn socks(call: &CallEgress, mut stream: TcpStream, ended: &CancellationToken) {
    let asked = tokio::time::timeout(FIRST_BYTES_TIMEOUT, read_socks(&mut stream)).await;
    let Ok(Ok((host, port))) = asked else { return };
    let (reply, name) = match host {
        None => (NOT_SUPPORTED, None),
        Some(host) => match check(call, &host, port) {
            Ok(name) => (SUCCEEDED, Some(name)),
            Err(_) => (NOT_ALLOWED, None),
        },
    };
    let answer = [SOCKS5, reply, 0, BY_IPV4, 0, 0, 0, 0, 0, 0];
    if let (Ok(()), Some(name)) = (stream.write_all(&answer).await, name) {
        serve_named(call, (&name, port), stream, Vec::new(), ended).await;
    }
}

/// Reads what is asked for: a host, or `None` for something else than a connection, and a port.
async fn read_socks(stream: &mut TcpStream) -> io::Result<(Option<String>, u16)> {
    let mut methods = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[SOCKS5, NONE_ACCEPTABLE]).await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&[SOCKS5, NO_AUTHENTICATION]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let [_, command, _, kind] = request;
    let host = match kind {
        BY_NAME => {
            let mut name = vec![0; stream.read_u8().await?.into()];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        BY_IPV4 => {
            let mut address = [0; 4];
            stream.read_exact(&mut address).await?;
            Ipv4Addr::from(address).to_string()
        }
        _ => {
            let mut address = [0; 16];
            stream.read_exact(&mut address).await?;
            std::net::Ipv6Addr::from(address).to_string()
        }
    };
    let port = stream.read_u16().await?;
    Ok((Some(host).filter(|_| command == CONNECT), port))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::super::{CallTraffic, Egress, EgressRules, HostRule, UploadMeter};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Sends bytes through a proxy to a server that answers `pong` and ends. Returns what comes back, and what was reached.
    fn exchange(list: &[&str], sent: &[u8]) -> (String, CallTraffic) {
        let server = StdListener::bind("127.0.0.1:0").unwrap();
        let place = format!("::{}", server.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            for mut stream in server.incoming().flatten() {
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).unwrap_or(0);
                let _ = stream.write_all(&[&buffer[..count], b"pong"].concat());
            }
        });
        let list = list.iter().flat_map(|entry| HostRule::parse_entry(entry).unwrap()).collect();
        let rules = EgressRules { list, connect_to: vec![place], ..EgressRules::default() };
        let call = Egress::new(rules, UploadMeter::default()).call();
        let proxy = call.proxy(ProxyUsers::Door).unwrap();
        let door = Arc::clone(proxy.door());
        let serving = proxy.serve().unwrap();
        let mut stream = door.connect().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(sent).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        drop(stream);
        serving.finish_now().unwrap();
        (String::from_utf8_lossy(&answer).into_owned(), call.take_traffic())
    }

    #[test]
    fn every_way_to_name_a_host_works() {
        for (list, sent, end) in [
            ("a.test:9000", &b"CONNECT a.test:9000 HTTP/1.1\r\n\r\nping"[..], "\r\n\r\npingpong"),
            ("a.test:9000", b"\x05\x01\x00\x05\x01\x00\x03\x06a.test\x23\x28ping", "pingpong"),
            (
                "a.test:80",
                b"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\npong",
            ),
        ] {
            let (answer, traffic) = exchange(&[list], sent);
            assert!(answer.ends_with(end), "{answer}");
            assert_eq!((traffic.used.len(), traffic.refused.len()), (1, 0), "{traffic:?}");
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        use RefusedReason::{Address, NotListed, PortNotListed, WrongHost};
        for (sent, reason, answered) in [
            (&b"CONNECT b.test:9000 HTTP/1.1\r\n\r\n"[..], NotListed, "HTTP/1.1 403"),
            (b"CONNECT a.test:443 HTTP/1.1\r\n\r\n", PortNotListed, "HTTP/1.1 403"),
            (b"CONNECT 127.0.0.1:9000 HTTP/1.1\r\n\r\n", Address, "HTTP/1.1 403"),
            (b"CONNECT 0x7f.1:9000 HTTP/1.1\r\n\r\n", Address, "HTTP/1.1 403"),
            (b"CONNECT [::1]:9000 HTTP/1.1\r\n\r\n", Address, "HTTP/1.1 403"),
            (b"GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", NotListed, "HTTP/1.1 403"),
            (b"GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", WrongHost, "HTTP/1.1 403"),
            (b"\x05\x01\x00\x05\x01\x00\x03\x06b.test\x23\x28", NotListed, "\x05\x00\x05\x02"),
            (b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\x01\x23\x28", Address, "\x05\x00\x05\x02"),
        ] {
            let (answer, traffic) = exchange(&["a.test:9000", "a.test:80"], sent);
            assert!(answer.starts_with(answered), "{answer:?}");
            let reasons: Vec<_> = traffic.refused.iter().map(|refused| refused.reason).collect();
            assert_eq!((reasons, traffic.used), (vec![reason], vec![]), "{sent:?}");
        }
    }

    #[test]
    fn only_connections_of_the_door_are_accepted() {
        let call = Egress::new(EgressRules::default(), UploadMeter::default()).call();
        let proxy = call.proxy(ProxyUsers::Door).unwrap();
        let address = proxy.door().address();
        let serving = proxy.serve().unwrap();
        let mut stranger = StdStream::connect(address).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stranger.write_all(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        serving.finish_now().unwrap();
        assert_eq!((answer.len(), call.take_traffic().is_empty()), (0, true));
    }
}

//! Connects to an allowed host. Its name is resolved only here, and the addresses that are checked are those that are used.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;

use super::addresses::is_forbidden;
use super::egress::Egress;
use super::names::HostName;
use super::refused_reason::RefusedReason;
use super::rules::{ConnectTarget, UpstreamProxy};

/// How long a connection may take, with the resolution of its name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many addresses of a name are tried.
const MAX_ADDRESSES: usize = 8;
/// How long the answer of a proxy can be.
const MAX_PROXY_ANSWER: usize = 16 << 10;

/// Connects to a host whose name and port are allowed.
///
/// # Errors
/// It has only addresses that are never reached, can't be resolved or doesn't answer.
pub(super) async fn connect(egress: &Egress, host: &HostName, port: u16) -> Result<TcpStream, RefusedReason> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let connect = connect_before(egress, host, port, deadline);
    let stream = tokio::time::timeout_at(deadline, connect).await.map_err(|_| RefusedReason::Unreachable)??;
    // Only a matter of speed.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn connect_before(
    egress: &Egress,
    host: &HostName,
    port: u16,
    deadline: Instant,
) -> Result<TcpStream, RefusedReason> {
    let rules = &egress.shared;
    if let Some(other) = rules.connect_to.iter().find(|other| other.applies_to(host, port)) {
        let addresses = match &other.target {
            ConnectTarget::Address(address) => vec![*address],
            ConnectTarget::Host(host, port) => resolve(host.as_str(), *port).await?,
        };
        return connect_first(&addresses, deadline).await;
    }
    if let Some(proxy) = rules.proxy.as_ref().filter(|proxy| proxy.is_for(host)) {
        return connect_through(proxy, host, port, deadline).await;
    }
    let may_be_private = rules.private.iter().any(|opened| opened.host == *host && opened.port == port);
    let mut addresses = resolve(host.as_str(), port).await?;
    addresses.retain(|address| may_be_private || !is_forbidden(address.ip()));
    if addresses.is_empty() {
        return Err(RefusedReason::Address);
    }
    connect_first(&addresses, deadline).await
}

/// All addresses of a name, by the resolver of this machine.
async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, RefusedReason> {
    let found = lookup_host((host, port)).await.map_err(|_| RefusedReason::Unreachable)?;
    let addresses: Vec<_> = found.collect();
    if addresses.is_empty() { Err(RefusedReason::Unreachable) } else { Ok(addresses) }
}

/// The first address that answers. Each gets an equal share of the time that is left.
async fn connect_first(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, RefusedReason> {
    let addresses = &addresses[..addresses.len().min(MAX_ADDRESSES)];
    for (at, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / (addresses.len() - at) as u32;
        if let Ok(Ok(stream)) = tokio::time::timeout(share, TcpStream::connect(address)).await {
            return Ok(stream);
        }
    }
    Err(RefusedReason::Unreachable)
}

/// Lets a proxy make the connection. It gets the name, so the addresses can't be checked here.
async fn connect_through(
    proxy: &UpstreamProxy,
    host: &HostName,
    port: u16,
    deadline: Instant,
) -> Result<TcpStream, RefusedReason> {
    let addresses = resolve(&proxy.host, proxy.port).await?;
    let mut stream = connect_first(&addresses, deadline).await?;
    let credentials = proxy.credentials.as_ref().map(|both| STANDARD.encode(both));
    let credentials = credentials.map(|both| format!("Proxy-Authorization: Basic {both}\r\n")).unwrap_or_default();
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{credentials}\r\n");
    let unreachable = |_| RefusedReason::Unreachable;
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    // Byte by byte, because what follows the answer is the host's.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_PROXY_ANSWER {
            return Err(RefusedReason::Unreachable);
        }
        answer.push(stream.read_u8().await.map_err(unreachable)?);
    }
    let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if answer.starts_with(b"HTTP/1.") && status == b"200" { Ok(stream) } else { Err(RefusedReason::Unreachable) }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::{ConnectTo, EgressRules, HostPort, UploadMeter};
    use super::*;

    fn egress(rules: EgressRules) -> Egress {
        Egress::new(rules, UploadMeter::default())
    }

    fn host(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_reached_only_if_the_operator_opens_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let local = host("localhost");
        let refused = connect(&egress(EgressRules::default()), &local, port).await;
        assert_eq!(refused.err(), Some(RefusedReason::Address));
        let opened = |host: &str| HostPort { host: HostName::parse(host).unwrap(), port };
        let private = |host: &str| egress(EgressRules { private: vec![opened(host)], ..EgressRules::default() });
        assert!(connect(&private("localhost"), &local, port).await.is_ok());
        assert!(connect(&private("other.test"), &local, port).await.is_err());
    }

    #[tokio::test]
    async fn another_place_replaces_resolution_and_address_rules() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = |text: String| vec![text.parse::<ConnectTo>().unwrap()];
        let proxy = UpstreamProxy::parse("http://127.0.0.1:1", "").ok();
        for place in
            [format!("a.test:443:127.0.0.1:{port}"), format!("::127.0.0.1:{port}"), format!(":443:localhost:{port}")]
        {
            let rules = EgressRules { connect_to: to(place), proxy: proxy.clone(), ..EgressRules::default() };
            assert!(connect(&egress(rules), &host("a.test"), 443).await.is_ok());
        }
        let rules = EgressRules { connect_to: to("a.test:443:127.0.0.1:1".into()), ..EgressRules::default() };
        assert_eq!(connect(&egress(rules), &host("a.test"), 443).await.err(), Some(RefusedReason::Unreachable));
    }

    #[tokio::test]
    async fn a_proxy_gets_the_name() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://me:pass@{}", listener.local_addr().unwrap());
        let proxy = UpstreamProxy::parse(&address, "direct.test").ok();
        let egress = egress(EgressRules { proxy, ..EgressRules::default() });
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1000];
            let count = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nhello").await.unwrap();
            String::from_utf8(request[..count].to_vec()).unwrap()
        };
        let secret = host("a.test");
        let (request, stream) = tokio::join!(serve, connect(&egress, &secret, 5432));
        assert_eq!(
            request,
            "CONNECT a.test:5432 HTTP/1.1\r\nHost: a.test:5432\r\nProxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n"
        );
        let mut text = String::new();
        stream.unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        let refuse = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 407 Who are you\r\n\r\n").await;
        };
        let ((), refused) = tokio::join!(refuse, connect(&egress, &secret, 443));
        assert_eq!(refused.err(), Some(RefusedReason::Unreachable));
    }
}

//! Plain HTTP: every request of a connection is read, and its Host must be the name that was looked up.
//!
//! What could be read in two ways isn't passed on: two lengths, folded lines, lines that end without a carriage return.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::client_hello::FIRST_BYTES_TIMEOUT;
use super::connector::connect;
use super::egress::CallEgress;
use super::names::HostName;
use super::refused_reason::RefusedReason;
use super::relay::{both, pass_down, relay};

/// How long a head can be.
const MAX_HEAD: usize = 64 << 10;
/// How long a line that says the size of a chunk can be.
const MAX_CHUNK_LINE: usize = 1 << 10;
const END: &[u8] = b"\r\n\r\n";

/// The head of a request that may be passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// As it is passed on.
    pub(super) bytes: Vec<u8>,
    pub(super) body: Body,
    /// It asks to talk WebSocket from here on.
    pub(super) is_websocket: bool,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
}

/// How the target of a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetForm {
    /// As for a server: a path, or a whole address that is passed on as it is.
    Server,
    /// As for a proxy: a whole address, which becomes a path; the connection ends with the request.
    Proxy,
}

/// Serves a connection to the plain port of an allowed host.
///
/// # Errors
/// Why it was cut.
pub(super) async fn serve(
    call: &CallEgress,
    (host, port): (&HostName, u16),
    client: &mut TcpStream,
    read_ahead: Vec<u8>,
    ended: &CancellationToken,
) -> Result<(), RefusedReason> {
    let mut input = Input { bytes: read_ahead };
    let first = tokio::time::timeout(FIRST_BYTES_TIMEOUT, input.head(client)).await;
    let head = match first {
        Ok(Ok(Some(head))) => check_head(&head, host, port, TargetForm::Server),
        Ok(Ok(None)) => return Ok(()),
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err(RefusedReason::NotHttp),
    };
    let head = match head {
        Ok(head) => head,
        Err(reason) => return Err(refuse(client, host.as_str(), reason).await),
    };
    let mut server = match connect(call.egress(), host, port).await {
        Ok(server) => server,
        Err(reason) => return Err(refuse(client, host.as_str(), reason).await),
    };
    let account = Account::open(call, host, port);
    if head.is_websocket && head.body == Body::Length(0) {
        let switched = switch_protocol(client, &mut server, &head, &account).await?;
        if switched {
            account.send(input.bytes.len())?;
            if server.write_all(&input.bytes).await.is_err() {
                return Ok(());
            }
            return relay(client, &mut server, &account, ended).await;
        }
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let up = pass_requests(&mut input, None, &mut from_client, &mut to_server, (host, port), &account);
        return both(up, pass_down(&mut from_server, &mut to_client, &account), &account, ended).await;
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = pass_requests(&mut input, Some(head), &mut from_client, &mut to_server, (host, port), &account);
    both(up, pass_down(&mut from_server, &mut to_client, &account), &account, ended).await
}

/// Passes on one request whose head was read, and everything that the host answers.
///
/// # Errors
/// Why it was cut.
pub(super) async fn pass_one(
    client: &mut TcpStream,
    server: &mut TcpStream,
    head: &Head,
    input: &mut Input,
    account: &Account,
    ended: &CancellationToken,
) -> Result<(), RefusedReason> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async {
        account.send(head.bytes.len())?;
        if to_server.write_all(&head.bytes).await.is_ok() {
            input.pass_body(head.body, &mut from_client, &mut to_server, account).await?;
        }
        Ok(())
    };
    both(up, pass_down(&mut from_server, &mut to_client, account), account, ended).await
}

/// Tells the client why. Returns the reason.
pub(super) async fn refuse(client: &mut TcpStream, host: &str, reason: RefusedReason) -> RefusedReason {
    let (status, what) = match reason {
        RefusedReason::WrongHost => ("403 Forbidden", "the request is for another host"),
        RefusedReason::NotHttp => ("400 Bad Request", "this isn't plain HTTP/1.1 as this job's network reads it"),
        RefusedReason::NotListed | RefusedReason::PortNotListed => ("403 Forbidden", "it isn't in this job's list"),
        RefusedReason::Address => ("403 Forbidden", "it has no address that this job may reach"),
        RefusedReason::UploadLimit => ("403 Forbidden", "this run has sent as much as it may"),
        _ => ("502 Bad Gateway", "it doesn't answer"),
    };
    let text = format!("legwork: no access to {host}: {what}\n");
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    );
    let end = async {
        if client.write_all(answer.as_bytes()).await.is_ok() && client.shutdown().await.is_ok() {
            // What the client still sends would otherwise reset the connection before the answer was read.
            let mut rest = [0; 4096];
            while let Ok(1..) = client.read(&mut rest).await {}
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), end).await;
    reason
}

/// Passes on requests until the client ends or one isn't for this host.
async fn pass_requests(
    input: &mut Input,
    first: Option<Head>,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    (host, port): (&HostName, u16),
    account: &Account,
) -> Result<(), RefusedReason> {
    let mut next = first;
    loop {
        let head = match next.take() {
            Some(head) => head,
            None => match input.head(from).await? {
                Some(head) => check_head(&head, host, port, TargetForm::Server)?,
                None => {
                    // The other side may be gone.
                    let _ = to.shutdown().await;
                    return Ok(());
                }
            },
        };
        // WebSocket is asked for in the first request of a connection only.
        let bytes = without_upgrade(&head.bytes);
        account.send(bytes.len())?;
        if to.write_all(&bytes).await.is_err() || !input.pass_body(head.body, from, to, account).await? {
            let _ = to.shutdown().await;
            return Ok(());
        }
    }
}

/// Sends a request for WebSocket and passes on the answer's head. Returns whether the host agrees.
async fn switch_protocol(
    client: &mut TcpStream,
    server: &mut TcpStream,
    head: &Head,
    account: &Account,
) -> Result<bool, RefusedReason> {
    account.send(head.bytes.len())?;
    let gone = |_| RefusedReason::Unreachable;
    server.write_all(&head.bytes).await.map_err(gone)?;
    let exchange = async {
        loop {
            let mut answer = Vec::new();
            // Byte by byte, because what follows isn't part of it.
            while !answer.ends_with(END) {
                if answer.len() >= MAX_HEAD {
                    return Err(RefusedReason::NotHttp);
                }
                answer.push(server.read_u8().await.map_err(gone)?);
            }
            account.receive(answer.len());
            client.write_all(&answer).await.map_err(gone)?;
            let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            match status {
                b"101" => return Ok(true),
                [b'1', ..] => {}
                _ => return Ok(false),
            }
        }
    };
    tokio::select! {
        result = exchange => result,
        result = account.must_end() => result.and(Err(RefusedReason::Unreachable)),
    }
}

/// What was read from a client, but not used yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
}

impl Input {
    async fn more(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Option<()> {
        let mut buffer = [0; 8192];
        let count = from.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Some(())
    }

    /// The next head with its end, or `None` if the client has ended before it.
    ///
    /// # Errors
    /// It is too long, or can't become a head.
    pub(super) async fn head(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, RefusedReason> {
        let mut searched = 0;
        loop {
            let found = self.bytes[searched..].windows(END.len()).position(|window| window == END);
            if let Some(at) = found {
                let rest = self.bytes.split_off(searched + at + END.len());
                return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
            }
            // A request begins with a word in capitals: other protocols needn't be waited for.
            let is_method = |byte: &u8| byte.is_ascii_uppercase() || b"-_ ".contains(byte);
            let starts_well = self.bytes.iter().take(3).all(is_method);
            if self.bytes.len() >= MAX_HEAD || !starts_well {
                return Err(RefusedReason::NotHttp);
            }
            searched = self.bytes.len().saturating_sub(END.len() - 1);
            if self.more(from).await.is_none() {
                return if self.bytes.is_empty() { Ok(None) } else { Err(RefusedReason::NotHttp) };
            }
        }
    }

    /// Passes on a body. Returns whether the host took all of it and the client sent it.
    async fn pass_body(
        &mut self,
        body: Body,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        account: &Account,
    ) -> Result<bool, RefusedReason> {
        match body {
            Body::Length(length) => self.pass_bytes(length, from, to, account).await,
            Body::Chunked => loop {
                let Some(line) = self.line(from).await? else { return Ok(false) };
                let digits = std::str::from_utf8(&line).ok().filter(|digits| {
                    (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
                });
                let size = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                let size = size.ok_or(RefusedReason::NotHttp)?;
                let line = [&line[..], b"\r\n"].concat();
                account.send(line.len())?;
                if to.write_all(&line).await.is_err() || !self.pass_bytes(size, from, to, account).await? {
                    return Ok(false);
                }
                // The end of the chunk, or of all: lines after it would be headers that nothing has checked.
                match self.line(from).await? {
                    Some(end) if end.is_empty() => {}
                    Some(_) => return Err(RefusedReason::NotHttp),
                    None => return Ok(false),
                }
                account.send(2)?;
                if to.write_all(b"\r\n").await.is_err() {
                    return Ok(false);
                }
                if size == 0 {
                    return Ok(true);
                }
            },
        }
    }

    async fn pass_bytes(
        &mut self,
        mut left: u64,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        account: &Account,
    ) -> Result<bool, RefusedReason> {
        while left > 0 {
            if self.bytes.is_empty() && self.more(from).await.is_none() {
                return Ok(false);
            }
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.bytes.len());
            account.send(count)?;
            if to.write_all(&self.bytes[..count]).await.is_err() {
                return Ok(false);
            }
            self.bytes.drain(..count);
            left -= count as u64;
        }
        Ok(true)
    }

    /// The next short line without its end.
    async fn line(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, RefusedReason> {
        loop {
            if let Some(at) = self.bytes.windows(2).position(|window| window == b"\r\n") {
                let line = self.bytes.drain(..at + 2).take(at).collect();
                return Ok(Some(line));
            }
            if self.bytes.len() >= MAX_CHUNK_LINE {
                return Err(RefusedReason::NotHttp);
            }
            if self.more(from).await.is_none() {
                return Ok(None);
            }
        }
    }
}

/// The parts of a request line.
struct RequestLine<'a> {
    method: &'a str,
    target: &'a str,
    is_1_1: bool,
}

/// The names and values of headers.
type Headers<'a> = Vec<(&'a str, &'a [u8])>;

fn split_head(head: &[u8]) -> Option<(RequestLine<'_>, Headers<'_>)> {
    let head = head.strip_suffix(END)?;
    let mut lines = Vec::new();
    let mut rest = head;
    while let Some(at) = rest.windows(2).position(|window| window == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    if lines.iter().any(|line| line.iter().any(|byte| [b'\r', b'\n', 0].contains(byte))) {
        return None;
    }
    let mut lines = lines.into_iter();
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let [method, target, version] = first.split(' ').collect::<Vec<_>>()[..] else { return None };
    let is_1_1 = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return None,
    };
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
    if !is_token(method) || target.is_empty() || target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return None;
    }
    let header = |line: &'_ [u8]| -> Option<(usize, usize)> {
        let colon = line.iter().position(|byte| *byte == b':')?;
        (colon > 0 && line[..colon].iter().copied().all(is_token_byte)).then_some((colon, colon + 1))
    };
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = header(line)?;
        headers.push((std::str::from_utf8(&line[..name]).ok()?, line[value..].trim_ascii()));
    }
    Some((RequestLine { method, target, is_1_1 }, headers))
}

/// See RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The host and port of a whole address, and its path.
pub(super) fn split_address(target: &str) -> Option<(&str, u16, &str)> {
    const SCHEME: &str = "http://";
    if !target.get(..SCHEME.len())?.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let rest = &target[SCHEME.len()..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.split_once(':') {
        Some((host, port)) => {
            let is_plain = port.bytes().all(|digit| digit.is_ascii_digit());
            Some((host, port.parse().ok().filter(|_| is_plain)?, path))
        }
        None => Some((authority, 80, path)),
    }
}

/// The host and port of a request to a proxy that isn't CONNECT.
pub(super) fn proxied_host(head: &[u8]) -> Option<(String, u16)> {
    let (line, _) = split_head(head)?;
    let (host, port, _) = split_address(line.target)?;
    Some((host.to_owned(), port))
}

/// The target of a CONNECT.
pub(super) fn connect_target(head: &[u8]) -> Option<(String, u16)> {
    let (line, _) = split_head(head)?;
    let (host, port) = line.target.rsplit_once(':').filter(|_| line.method == "CONNECT")?;
    Some((host.to_owned(), port.parse().ok()?))
}

/// Checks a head.
///
/// # Errors
/// It is for another host, or can be read in several ways.
pub(super) fn check_head(head: &[u8], host: &HostName, port: u16, form: TargetForm) -> Result<Head, RefusedReason> {
    let (line, headers) = split_head(head).ok_or(RefusedReason::NotHttp)?;
    let is_host = |named: &str, named_port: u16| named.eq_ignore_ascii_case(host.as_str()) && named_port == port;
    let target = match split_address(line.target) {
        Some((named, named_port, path)) => {
            if !is_host(named, named_port) {
                return Err(RefusedReason::WrongHost);
            }
            match form {
                TargetForm::Server => line.target.to_owned(),
                TargetForm::Proxy if path.starts_with('/') => path.to_owned(),
                TargetForm::Proxy => format!("/{path}"),
            }
        }
        None if line.target.starts_with('/') || line.target == "*" => line.target.to_owned(),
        // CONNECT, or the address of another scheme.
        None => return Err(RefusedReason::WrongHost),
    };
    if line.method == "CONNECT" {
        return Err(RefusedReason::WrongHost);
    }
    let all = |wanted: &str| {
        headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| *value)
            .collect::<Vec<_>>()
    };
    let [named] = all("host")[..] else { return Err(RefusedReason::WrongHost) };
    let named = std::str::from_utf8(named).map_err(|_| RefusedReason::WrongHost)?;
    let (named, named_port) = match named.split_once(':') {
        Some((named, port)) => (named, port.parse().map_err(|_| RefusedReason::WrongHost)?),
        None => (named, 80),
    };
    if !is_host(named, named_port) {
        return Err(RefusedReason::WrongHost);
    }
    let body = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => Body::Length(0),
        ([length], []) => {
            let digits = std::str::from_utf8(length).ok().filter(|digits| {
                (1..=18).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
            });
            Body::Length(digits.and_then(|digits| digits.parse().ok()).ok_or(RefusedReason::NotHttp)?)
        }
        ([], [coding]) if line.is_1_1 && coding.eq_ignore_ascii_case(b"chunked") => Body::Chunked,
        _ => return Err(RefusedReason::NotHttp),
    };
    let is_websocket = form == TargetForm::Server
        && line.is_1_1
        && matches!(all("upgrade")[..], [protocol] if protocol.eq_ignore_ascii_case(b"websocket"));
    let mut bytes = Vec::new();
    bytes.extend(format!("{} {target} HTTP/1.{}\r\n", line.method, u8::from(line.is_1_1)).bytes());
    for (name, value) in &headers {
        let is_for_proxies = ["connection", "proxy-connection", "proxy-authorization", "keep-alive"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own));
        if form == TargetForm::Proxy && is_for_proxies || name.eq_ignore_ascii_case("upgrade") && !is_websocket {
            continue;
        }
        bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if form == TargetForm::Proxy {
        bytes.extend(b"Connection: close\r\n");
    }
    bytes.extend(b"\r\n");
    Ok(Head { bytes, body, is_websocket })
}

/// A head without the wish to talk another protocol, which a host may ignore anyway.
fn without_upgrade(head: &[u8]) -> Vec<u8> {
    let is_upgrade = |line: &[u8]| line.len() >= 8 && line[..8].eq_ignore_ascii_case(b"upgrade:");
    let lines = head.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| !is_upgrade(line)).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str) -> Result<Head, RefusedReason> {
        check_head(head.as_bytes(), &HostName::parse("a.test").unwrap(), 80, TargetForm::Server)
    }

    #[test]
    fn requests_for_the_host_pass() {
        for (head, body) in [
            ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", Body::Length(0)),
            ("GET /x?y HTTP/1.1\r\nhost:  A.Test:80 \r\nX: 1\r\n\r\n", Body::Length(0)),
            ("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", Body::Length(0)),
            ("OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", Body::Length(0)),
            ("GET /ü HTTP/1.0\r\nHost: a.test\r\n\r\n", Body::Length(0)),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 12\r\n\r\n", Body::Length(12)),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: Chunked\r\n\r\n", Body::Chunked),
        ] {
            assert_eq!(check(head).map(|head| head.body), Ok(body), "{head}");
        }
        let upgrade = "GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: h2c\r\nUpgradeable: 1\r\n\r\n";
        assert_eq!(check(upgrade).unwrap().bytes, b"GET / HTTP/1.1\r\nHost: a.test\r\nUpgradeable: 1\r\n\r\n");
        let websocket = check("GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: WebSocket\r\n\r\n").unwrap();
        assert!(websocket.is_websocket);
        assert_eq!(without_upgrade(&websocket.bytes), b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    }

    #[test]
    fn what_could_be_for_another_host_does_not_pass() {
        use RefusedReason::{NotHttp, WrongHost};
        for (head, reason) in [
            ("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\nHost: a.test:81\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\nHost: a.test.\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", WrongHost),
            ("GET / HTTP/1.1\r\n\r\n", WrongHost),
            ("GET / HTTP/1.0\r\n\r\n", WrongHost),
            ("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", WrongHost),
            ("GET http://a.test:81/ HTTP/1.1\r\nHost: a.test\r\n\r\n", WrongHost),
            ("GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", WrongHost),
            ("GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", WrongHost),
            ("CONNECT b.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", WrongHost),
            ("GET / HTTP/2.0\r\nHost: a.test\r\n\r\n", NotHttp),
            ("PRI * HTTP/2.0\r\n\r\n", NotHttp),
            ("GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", NotHttp),
            ("GET /\tx HTTP/1.1\r\nHost: a.test\r\n\r\n", NotHttp),
            ("GET / HTTP/1.1\r\nHost : a.test\r\n\r\n", NotHttp),
            ("GET / HTTP/1.1\r\nHost: a.test\r\n Host: b.test\r\n\r\n", NotHttp),
            ("GET / HTTP/1.1\nHost: b.test\r\nHost: a.test\r\n\r\n", NotHttp),
            ("GET / HTTP/1.1\r\nX: \nHost: b.test\r\nHost: a.test\r\n\r\n", NotHttp),
            ("GET / HTTP/1.1\r\nX: \rHost: b.test\r\nHost: a.test\r\n\r\n", NotHttp),
            ("GET / HTTP/1.1\r\nHost: a.test\r\nX: \0\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1, 1\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +1\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x1\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", NotHttp),
            ("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n", NotHttp),
            ("POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", NotHttp),
        ] {
            assert_eq!(check(head), Err(reason), "{head:?}");
        }
    }

    #[test]
    fn requests_to_a_proxy_become_those_to_a_server() {
        let head = b"GET http://A.test?x HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic x\r\nConnection: keep-alive\r\n\r\n";
        assert_eq!(proxied_host(head), Some(("A.test".to_owned(), 80)));
        let checked = check_head(head, &HostName::parse("a.test").unwrap(), 80, TargetForm::Proxy).unwrap();
        assert_eq!(checked.bytes, b"GET /?x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        assert_eq!(connect_target(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n"), Some(("a.test".to_owned(), 443)));
        assert_eq!(connect_target(b"GET a.test:443 HTTP/1.1\r\n\r\n"), None);
    }
}

//! The server's name in the first bytes of a TLS connection.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::names::HostName;
use super::refused_reason::RefusedReason;

/// How long a greeting can be, with its records. Those with large keys are below 4 KiB.
const MAX_HELLO: usize = 16 << 10;
/// How long it may take.
pub(super) const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// See RFC 8446, sections 4 and 5.1, and RFC 6066, section 3.
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Reads a greeting to the end of its names and checks that the server is this one. Returns the bytes, which were only read ahead.
///
/// # Errors
/// It isn't TLS, or names another server or none.
pub(super) async fn read_hello(
    stream: &mut (impl AsyncRead + Unpin),
    mut bytes: Vec<u8>,
    host: &HostName,
) -> Result<Vec<u8>, RefusedReason> {
    let read = async {
        loop {
            match parse(&bytes) {
                Hello::NotTls => return Err(RefusedReason::NotTls),
                Hello::NoServerName => return Err(RefusedReason::NoServerName),
                Hello::Server(name) if name.eq_ignore_ascii_case(host.as_str().as_bytes()) => return Ok(()),
                Hello::Server(_) => return Err(RefusedReason::WrongServerName),
                Hello::Incomplete if bytes.len() >= MAX_HELLO => return Err(RefusedReason::NotTls),
                Hello::Incomplete => {}
            }
            let mut buffer = [0; 2048];
            let most = buffer.len().min(MAX_HELLO - bytes.len());
            match stream.read(&mut buffer[..most]).await {
                Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
                _ => return Err(RefusedReason::NotTls),
            }
        }
    };
    match tokio::time::timeout(FIRST_BYTES_TIMEOUT, read).await {
        Ok(Ok(())) => Ok(bytes),
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err(RefusedReason::NotTls),
    }
}

/// What the bytes that were read so far are.
#[derive(Debug, PartialEq, Eq)]
enum Hello {
    Incomplete,
    NotTls,
    NoServerName,
    Server(Vec<u8>),
}

fn parse(bytes: &[u8]) -> Hello {
    let message = match handshake_message(bytes) {
        Some(Ok(message)) => message,
        Some(Err(())) => return Hello::NotTls,
        None => return Hello::Incomplete,
    };
    match server_name(&message) {
        Ok(Some(name)) => Hello::Server(name),
        Ok(None) => Hello::NoServerName,
        Err(Malformed) => Hello::NotTls,
    }
}

/// Puts the greeting together, which may be split into several records; `None` if there is more to come.
fn handshake_message(bytes: &[u8]) -> Option<Result<Vec<u8>, ()>> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if rest.first().is_some_and(|kind| *kind != HANDSHAKE_RECORD) || rest.get(1).is_some_and(|major| *major != 3) {
            return Some(Err(()));
        }
        let length = usize::from(u16::from_be_bytes([*rest.get(3)?, *rest.get(4)?]));
        if length == 0 || length > MAX_HELLO {
            return Some(Err(()));
        }
        let body = &rest[5..];
        message.extend_from_slice(&body[..length.min(body.len())]);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Some(Err(()));
        }
        if let [_, high, middle, low, ..] = message[..] {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            if length > MAX_HELLO {
                return Some(Err(()));
            }
            if let Some(hello) = message.get(4..4 + length) {
                return Some(Ok(hello.to_vec()));
            }
        }
        rest = body.get(length..)?;
    }
}

struct Malformed;

/// A part of the greeting that is being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What follows a length of two bytes.
    fn part(&mut self) -> Result<Self, Malformed> {
        let length = self.number()?;
        Ok(Self(self.take(length.into())?))
    }
}

/// The name in a greeting. One with several isn't accepted, because servers could choose another one.
fn server_name(hello: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut hello = Reader(hello);
    // Version and random bytes, session, ciphers, compressions.
    hello.take(34)?;
    let session = hello.byte()?;
    hello.take(session.into())?;
    hello.part()?;
    let compressions = hello.byte()?;
    hello.take(compressions.into())?;
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = hello.part()?;
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let mut extension = extensions.part()?;
        if kind != SERVER_NAME {
            continue;
        }
        let mut names = extension.part()?;
        let is_host = names.byte()? == HOST_NAME;
        let found = names.part()?.0.to_vec();
        if !is_host || !names.0.is_empty() || name.replace(found).is_some() {
            return Err(Malformed);
        }
    }
    Ok(name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A greeting with these names, in records of at most `most` bytes.
    pub(crate) fn hello(names: &[&str], most: usize) -> Vec<u8> {
        let sized = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        let mut extensions = Vec::new();
        extensions.extend([0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04]);
        for name in names {
            let entry = [&[HOST_NAME][..], &sized(name.as_bytes())].concat();
            extensions.extend([0, 0]);
            extensions.extend(sized(&sized(&entry)));
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(32);
        body.extend([9; 32]);
        body.extend(sized(&[0x13, 0x01, 0x13, 0x02]));
        body.extend([1, 0]);
        body.extend(sized(&extensions));
        let length = (body.len() as u32).to_be_bytes();
        let message = [&[CLIENT_HELLO][..], &length[1..], &body].concat();
        let records = message.chunks(most).flat_map(|part| [&[HANDSHAKE_RECORD, 3, 1][..], &sized(part)].concat());
        records.collect()
    }

    #[test]
    fn the_name_is_found_however_the_greeting_is_split() {
        for most in [1, 7, 100, 10_000] {
            let bytes = hello(&["a.test"], most);
            assert_eq!(parse(&bytes), Hello::Server(b"a.test".to_vec()), "{most}");
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Hello::Incomplete, "{most}, {end}");
            }
        }
        assert_eq!(parse(&hello(&[], 100)), Hello::NoServerName);
        assert_eq!(parse(&hello(&["a.test", "b.test"], 100)), Hello::NotTls);
    }

    #[test]
    fn other_bytes_are_not_tls() {
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", b"\x16\x02", b"\x16\x03\x01\0\0", b"\x16\x03\x01\0\x05\x02"]
        {
            assert_eq!(parse(bytes), Hello::NotTls, "{bytes:?}");
        }
        // Every changed byte is read without a panic.
        let bytes = hello(&["a.test"], 50);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = parse(&changed);
            }
        }
    }

    #[tokio::test]
    async fn one_byte_pieces_work_and_another_name_does_not() {
        let host = HostName::parse("a.test").unwrap();
        let bytes = hello(&["A.Test"], 100);
        let (mut ours, mut theirs) = tokio::io::duplex(1);
        let sent = bytes.clone();
        let send = async move { tokio::io::AsyncWriteExt::write_all(&mut theirs, &sent).await.unwrap() };
        let (read, ()) = tokio::join!(read_hello(&mut ours, Vec::new(), &host), send);
        assert_eq!(read, Ok(bytes));
        for (bytes, reason) in [
            (hello(&["b.test"], 100), RefusedReason::WrongServerName),
            (hello(&["a.test.evil.test"], 100), RefusedReason::WrongServerName),
            (hello(&[], 100), RefusedReason::NoServerName),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), RefusedReason::NotTls),
            (hello(&["a.test"], 100)[..20].to_vec(), RefusedReason::NotTls),
        ] {
            assert_eq!(read_hello(&mut &bytes[..], Vec::new(), &host).await, Err(reason));
        }
        // A greeting that never ends.
        let endless = [&[HANDSHAKE_RECORD, 3, 1, 0x40, 0, CLIENT_HELLO, 0, 0x40, 0][..], &[0; 20_000]].concat();
        assert_eq!(read_hello(&mut &endless[..], Vec::new(), &host).await, Err(RefusedReason::NotTls));
    }
}

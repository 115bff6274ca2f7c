//! The part of HTTP/1.1 that a client of the Messages API uses, parsed by hand and bounded.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;

/// The longest head of a request, and the longest body, in bytes.
const MAX_HEAD: u64 = 64 * 1024;
const MAX_BODY: u64 = 64 * 1024 * 1024;

/// The request line and the headers.
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

/// What arrived over a connection.
pub(crate) enum Incoming {
    /// Nothing more: the client has closed it, perhaps in the middle of a request.
    Closed,
    /// Something that isn't HTTP, with the reason.
    Bad(String),
    /// A complete request.
    Request(Head, Vec<u8>),
}

/// Reads one request; `buffer` is for its body.
pub(crate) fn read(reader: &mut BufReader<TcpStream>, buffer: Vec<u8>) -> Incoming {
    match try_read(reader, buffer) {
        Ok(incoming) => incoming,
        Err(error) if error.kind() == ErrorKind::InvalidData => Incoming::Bad(error.to_string()),
        Err(_) => Incoming::Closed,
    }
}

fn try_read(reader: &mut BufReader<TcpStream>, mut body: Vec<u8>) -> std::io::Result<Incoming> {
    let mut limited = reader.by_ref().take(MAX_HEAD);
    let first = line(&mut limited)?;
    let mut words = first.split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1"), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad(&format!("not a request line: {first:?}")));
    };
    let mut headers = Vec::new();
    loop {
        let next = line(&mut limited)?;
        if next.is_empty() {
            break;
        }
        let Some((name, value)) = next.split_once(':') else { return Err(bad(&format!("not a header: {next:?}"))) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let head = Head { method: method.to_owned(), path: path.to_owned(), headers };
    body.clear();
    match (head.header("content-length"), head.header("transfer-encoding")) {
        (Some(_), Some(_)) => return Err(bad("both content-length and transfer-encoding")),
        (Some(length), None) => {
            let length = length.parse().map_err(|_| bad(&format!("content-length is {length:?}")))?;
            take(reader, length, &mut body)?;
        }
        (None, Some("chunked")) => chunked(reader, &mut body)?,
        (None, Some(other)) => return Err(bad(&format!("transfer-encoding is {other:?}"))),
        (None, None) => {}
    }
    Ok(Incoming::Request(head, body))
}

fn chunked(reader: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let size = line(&mut reader.by_ref().take(1024))?;
        let length = u64::from_str_radix(size.trim(), 16).map_err(|_| bad(&format!("a chunk's length is {size:?}")))?;
        take(reader, length, body)?;
        let end = line(&mut reader.by_ref().take(1024))?;
        if !end.is_empty() {
            return Err(bad(&format!("a chunk ends with {end:?}")));
        }
        if length == 0 {
            return Ok(());
        }
    }
}

fn take(reader: &mut BufReader<TcpStream>, length: u64, body: &mut Vec<u8>) -> std::io::Result<()> {
    if body.len() as u64 + length > MAX_BODY {
        return Err(bad("the body is longer than 64 MiB"));
    }
    body.reserve(usize::try_from(length).map_err(|_| bad("the body is too long"))?);
    if reader.by_ref().take(length).read_to_end(body)? as u64 != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// One line without its line end.
fn line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut text = Vec::new();
    reader.read_until(b'\n', &mut text)?;
    match text.strip_suffix(b"\r\n") {
        Some(line) => String::from_utf8(line.to_vec()).map_err(|_| bad("a line of the head isn't UTF-8")),
        None if text.ends_with(b"\n") => Err(bad("a line ends with LF alone")),
        None if text.len() >= 1024 => Err(bad("a line of the head is too long")),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn bad(why: &str) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, why.to_owned())
}

impl Head {
    /// The first header of a name, which is given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

//! A collector that keeps what it gets.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// A request that it got.
#[derive(Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// The headers, their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Decodes the protobuf.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let request = ExportTraceServiceRequest::decode(&*self.body).expect("protobuf");
        request.resource_spans.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }
}

pub(crate) struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Collector {
    /// Replies with these statuses, and then with 200.
    pub(crate) fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the port's number");
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = serve(&stream, &kept, statuses);
            }
        });
        Self { address, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("the requests").clone()
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, kept: &Mutex<Vec<Received>>, statuses: &[u16]) -> std::io::Result<()> {
    let (mut lines, mut out) = (BufReader::new(stream.try_clone()?), stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let path = head[0].split(' ').nth(1).unwrap_or_default().to_owned();
        let headers: BTreeMap<String, String> = head[1..]
            .iter()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        lines.read_exact(&mut body)?;
        let mut kept = kept.lock().expect("the requests");
        let status = statuses.get(kept.len()).copied().unwrap_or(200);
        kept.push(Received { path, headers, body });
        drop(kept);
        write!(out, "HTTP/1.1 {status} Status\r\ncontent-length: 0\r\nretry-after: 0\r\n\r\n")?;
    }
}

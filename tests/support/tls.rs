//! A TLS server with a certificate of `tests/tls` that gives every request the same answer.
//!
//! The certificates are for 127.0.0.1 and valid until 2120, except as their names say. `authority.pem` has signed all
//! except the self-signed one and `client.pem`, which is a client's. They were made with `openssl ca`, all with one key.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::{body_dump, tcp_peer};

/// A file of `tests/tls`.
pub(crate) fn file(name: &str) -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// Starts one on a loopback port. It runs until the tests are over.
pub(crate) fn start(certificate: &str, body: &'static str) -> SocketAddr {
    start_for(None, certificate, body)
}

/// Starts one that answers only clients with this certificate, if any.
pub(crate) fn start_for(client: Option<&str>, certificate: &str, body: &'static str) -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(file(certificate)).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(file("servers.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = versions.expect("TLS");
    let builder = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(file(client)).expect("a certificate")).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let config = builder.with_single_cert(vec![certificate], key);
    let config = Arc::new(config.expect("a certificate with its key"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = listener.local_addr().expect("the port's number");
    let test = body_dump::test();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, test) = (Arc::clone(&config), test.clone());
            thread::spawn(move || serve(config, stream, body, &test));
        }
    });
    address
}

fn serve(config: Arc<ServerConfig>, stream: TcpStream, body: &str, test: &str) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).ok()?, stream));
    let (mut length, mut request) = (0, Vec::new());
    loop {
        let mut line = String::new();
        // A client that doesn't trust the certificate sends nothing more.
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        request.extend_from_slice(line.as_bytes());
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    stream.by_ref().take(length).read_to_end(&mut request).ok()?;
    tcp_peer::dump_request(&request, test);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    stream.get_mut().write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).ok()?;
    stream.get_mut().flush().ok()
}

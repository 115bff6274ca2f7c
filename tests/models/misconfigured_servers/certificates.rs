//! Invalid certificates, and URLs with the wrong scheme.

use super::*;

#[test]
fn an_invalid_certificate_is_explained() {
    let trusting = |model: &str, certificate: &str| {
        run_against(model, "https", tls::start(certificate, "{}")).env("SSL_CERT_FILE", tls::file("authority.pem"))
    };
    for (model, _) in MODELS {
        for (certificate, what, hint) in [
            ("expired.pem", "has expired", "clock"),
            ("early.pem", "isn't valid yet", "clock"),
            ("other-name.pem", "is for another name", "models.example.test"),
            ("self-signed.pem", "is signed by an unknown authority", "SSL_CERT_FILE"),
        ] {
            let ended = trusting(model, certificate).expect_outcome(5, "provider_rejected");
            ended
                .assert_stderr_contains("the certificate of https://127.0.0.1:")
                .assert_stderr_contains(what)
                .assert_stderr_contains(hint);
        }
    }
    let (model, _) = MODELS[0];
    let unknown =
        run_against(model, "https", tls::start("right.pem", "{}")).env("SSL_CERT_FILE", tls::file("self-signed.pem"));
    unknown.expect_outcome(5, "provider_rejected").assert_stderr_contains("is signed by an unknown authority");
}

#[test]
fn a_private_authority_can_be_trusted() {
    let reply = r#"{"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]}"#;
    for (certificate, known) in [("right.pem", "authority.pem"), ("self-signed.pem", "self-signed.pem")] {
        let program = run_against("openai-chat/some-model", "https", tls::start(certificate, reply));
        program.env("SSL_CERT_FILE", tls::file(known)).expect_outcome(0, "completed").assert_stdout("Hello.\n");
    }
}

/// A server without TLS that answers with its own HTTP error.
fn plaintext_server() -> SocketAddr {
    fixed_reply_server(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// A TLS server that closes the connection without an answer unless it gets a ClientHello.
fn silent_tls_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut record = [0; 5];
            if stream.read_exact(&mut record).is_ok() && record[..2] == [22, 3] {
                let mut hello = vec![0; usize::from(u16::from_be_bytes([record[3], record[4]]))];
                // The message fills the record, and is a ClientHello.
                if stream.read_exact(&mut hello).is_ok() && hello[0] == 1 {
                    let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 40]);
                }
            }
        }
    });
    address
}

/// A server that answers everything with these bytes.
fn fixed_reply_server(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 64 << 10]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn the_wrong_scheme_is_reported() {
    for (model, _) in MODELS {
        let program = run_against(model, "https", plaintext_server()).env("SSL_CERT_FILE", tls::file("authority.pem"));
        let ended = program.expect_outcome(5, "provider_rejected");
        ended.assert_stderr_contains("doesn't speak TLS").assert_stderr_contains("write http:// instead of https://");
        // A TLS server answers a plain-text request with an alert or, on some servers, with a page.
        let alert = Answer::raw([21, 3, 3, 0, 2, 2, 50].as_slice());
        run_with_any_answer(model, alert)
            .assert_stderr_contains("doesn't speak HTTP")
            .assert_stderr_contains("https:// address");
        let ended = run_against(model, "http", silent_tls_server()).expect_outcome(5, "provider_rejected");
        ended.assert_stderr_contains("requires TLS").assert_stderr_contains("write https:// instead of http:// into");

        run_with_any_answer(model, Answer::raw("SSH-2.0-OpenSSH_9.6\r\n")).assert_stderr_contains("doesn't speak HTTP");
        // The server's certificate has another name, or the server uses another TLS version.
        let refusing = fixed_reply_server(&[21, 3, 3, 0, 2, 2, 112]);
        let program = run_against(model, "https", refusing).env("SSL_CERT_FILE", tls::file("authority.pem"));
        program
            .expect_outcome(5, "provider_rejected")
            .assert_stderr_contains("refuses a TLS connection")
            .assert_stderr_contains("_BASE_URL right?");
        let words = "Client sent an HTTP request to an HTTPS server.\n";
        let head = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n", words.len());
        run_with_any_answer(model, Answer::raw(format!("{head}{words}")))
            .assert_stderr_contains("write https:// instead of http://");
    }
}

//! Detects servers that require TLS but get a plaintext request. Most of them just close the connection, as an
//! overloaded server does. A TLS handshake distinguishes the two.

use std::time::Duration;

use reqwest::{Client, Url};
use tokio::time::timeout;

use crate::providers::api::{ProviderError, Retry};
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::transport_error::root_cause;

/// The timeout of the handshake.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Replaces the final error if the server requires TLS. There is no probe before that, because most servers that close
/// connections are busy, and some limit connections.
pub(crate) async fn diagnose_closed_connection(
    endpoint: &Endpoint,
    outcome: Result<Retry, ProviderError>,
) -> Result<Retry, ProviderError> {
    match (outcome, endpoint.closed_plaintext_client()) {
        (Err(error), Some((client, url))) if speaks_tls(&client, url).await => Err(tls_required(endpoint, &error)),
        (outcome, _) => outcome,
    }
}

/// Whether the server accepts a TLS handshake, or refuses it with a TLS alert. `client` trusts no certificates, so that
/// the handshake fails before anything is sent.
async fn speaks_tls(client: &Client, url: &Url) -> bool {
    let Some(https) = https_root(url) else { return false };
    match timeout(PROBE_TIMEOUT, client.head(https).send()).await {
        Ok(Err(error)) => {
            let cause = root_cause(&error);
            ["peer certificate", "received fatal alert"].iter().any(|words| cause.contains(words))
        }
        Ok(Ok(_)) | Err(_) => false,
    }
}

/// The https address of the same host and port, without credentials and path.
fn https_root(url: &Url) -> Option<Url> {
    Url::parse(&format!("https://{}:{}/", url.host_str()?, url.port_or_known_default()?)).ok()
}

/// The error for a server that requires TLS.
fn tls_required(endpoint: &Endpoint, error: &ProviderError) -> ProviderError {
    let what = format!("the server at {} requires TLS and closes plaintext connections", endpoint.display_url);
    let hint = format!("write https:// instead of http:// into {}", endpoint.labels.base_url_source);
    ProviderError { usage: error.usage, ..ProviderError::rejected(what).with_hint(hint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_uses_only_host_and_port() {
        for (text, expected) in [
            ("http://me:secret@host.example/v1?key=secret", "https://host.example:80/"),
            ("http://[::1]:8080/v1", "https://[::1]:8080/"),
        ] {
            let asked = https_root(&Url::parse(text).unwrap()).unwrap();
            assert_eq!(asked, Url::parse(expected).unwrap());
            assert_eq!(asked.port_or_known_default(), Url::parse(text).unwrap().port_or_known_default());
        }
    }
}

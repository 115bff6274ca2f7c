//! Servers that speak TLS where they are asked in clear text. Most say nothing then and close the connection, as one does
//! that is overloaded; what tells the two apart is that they answer the beginning of a TLS handshake.

use std::time::Duration;

use reqwest::{Client, Url};
use tokio::time::timeout;

use crate::providers::api::{ProviderError, Retry};
use crate::providers::transport::endpoint::Endpoint;
use crate::providers::transport::transport_error::root_cause;

/// How long the answer to a handshake's beginning is waited for.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The fault that ends all tries by its true name. Nobody is asked sooner, for most that close a connection are just busy, and
/// some count who comes.
pub(crate) async fn diagnose_closed_connection(
    endpoint: &Endpoint,
    tried: Result<Retry, ProviderError>,
) -> Result<Retry, ProviderError> {
    match (tried, endpoint.closed_plaintext_client()) {
        (Err(fault), Some((client, url))) if speaks_tls(client, url).await => Err(tls_required(endpoint, &fault)),
        (tried, _) => tried,
    }
}

/// Whether what listens there goes along with a TLS handshake, or refuses it in TLS's own words. `client` trusts no certificate
/// at all, so that the handshake ends before anything is sent.
async fn speaks_tls(client: &Client, url: &Url) -> bool {
    let Some(secured) = https_root(url) else { return false };
    match timeout(PROBE_TIMEOUT, client.head(secured).send()).await {
        Ok(Err(error)) => {
            let cause = root_cause(&error);
            ["peer certificate", "received fatal alert"].iter().any(|words| cause.contains(words))
        }
        Ok(Ok(_)) | Err(_) => false,
    }
}

/// The root of the server at the same port by https, without credentials.
fn https_root(url: &Url) -> Option<Url> {
    Url::parse(&format!("https://{}:{}/", url.host_str()?, url.port_or_known_default()?)).ok()
}

/// What it means that such a server cut all tries off.
fn tls_required(endpoint: &Endpoint, fault: &ProviderError) -> ProviderError {
    let what =
        format!("what answers at {} speaks TLS, and in clear text it closes the connection", endpoint.display_url());
    let hint = format!("write https:// instead of http:// into {}", endpoint.labels().base_url_source);
    ProviderError { usage: fault.usage, ..ProviderError::rejected(what).with_hint(hint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_address_but_host_and_port_is_asked() {
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

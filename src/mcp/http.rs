//! Servers with an address: streamable HTTP.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::stdio::MAX_MESSAGE_BYTES;
use crate::providers::base_url::is_loopback;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A transport to an address. Proxies and certificates are those of the environment, as for providers.
///
/// # Errors
/// Why it can't be used.
pub(super) fn transport(
    url: &str,
    headers: &[(String, String)],
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("legwork/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    // A proxy would see what is sent in plaintext.
    let is_plaintext = url.starts_with("http:");
    if is_plaintext || is_loopback(url) {
        builder = builder.no_proxy();
    }
    if is_plaintext {
        // Loading the system's certificates takes most of the time of creating a client.
        builder = builder.tls_certs_only(std::iter::empty());
    }
    let client = builder.build().map_err(|error| format!("the HTTP client can't be created: {error}"))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.custom_headers = parse_headers(headers)?;
    config.max_sse_event_size = MAX_MESSAGE_BYTES;
    config.max_json_response_size = MAX_MESSAGE_BYTES;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn parse_headers(headers: &[(String, String)]) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let parse = |(name, value): &(String, String)| {
        let invalid = || format!("the value of the header `{name}` isn't valid");
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        value.set_sensitive(true);
        Ok((parsed, value))
    };
    headers.iter().map(parse).collect()
}

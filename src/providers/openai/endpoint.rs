//! Where OpenAI's APIs are, and what is different elsewhere.

use crate::providers::env_config::EndpointNames;
use crate::providers::transport::http::Endpoint;
use crate::providers::transport::retry::RetryPolicy;
use crate::providers::{ConnectContext, DefaultEndpoint, ProviderError};

const HOST: &str = "api.openai.com";
const BASE_URL: &str = "https://api.openai.com/v1";
/// Where they are.
pub(in crate::providers) const DEFAULT_ENDPOINT: DefaultEndpoint =
    DefaultEndpoint { base_url: BASE_URL, base_url_env: BASE_URL_ENV };
/// The variable with the key.
pub(in crate::providers) const KEY_ENV: &str = "OPENAI_API_KEY";
const BASE_URL_ENV: &str = "OPENAI_BASE_URL";

/// The endpoint of an API, `path` below the base address: `https://api.openai.com/v1`, or what `OPENAI_BASE_URL` says, as
/// OpenAI's own clients read it. At OpenAI's own a key is needed; elsewhere one is sent where there is one, but not in the
/// place of credentials that the address itself holds.
///
/// # Errors
/// The address or the key is malformed, or there is no key where one is needed.
pub(in crate::providers) fn connect(
    connect: &ConnectContext<'_>,
    api: &'static str,
    path: &str,
) -> Result<(Endpoint, RetryPolicy), ProviderError> {
    let names = EndpointNames { key_env: KEY_ENV, base_url_env: BASE_URL_ENV, api };
    let mut endpoint = Endpoint::new(connect, names, BASE_URL, path)?;
    if let Some(key) = connect.resolve_key(names, is_official(&endpoint))? {
        if endpoint.has_credentials() {
            endpoint.add_secret(&key);
        } else {
            endpoint.secret_header("authorization", "Bearer ", &key);
        }
    }
    let patience = RetryPolicy::new(connect.env, &endpoint)?;
    Ok((endpoint, patience))
}

/// Whether it is OpenAI's own, in any region (`eu.api.openai.com`).
pub(in crate::providers) fn is_official(endpoint: &Endpoint) -> bool {
    endpoint.has_host(HOST) || endpoint.host().ends_with(&format!(".{HOST}"))
}

/// Whether OpenAI's models answer there under OpenAI's own rules: its own endpoints, and Azure's.
pub(in crate::providers) fn has_openai_rules(endpoint: &Endpoint) -> bool {
    const AZURE: [&str; 3] = [".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"];
    is_official(endpoint) || AZURE.iter().any(|end| endpoint.host().ends_with(end))
}

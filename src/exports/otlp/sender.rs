//! Sends the spans of a run to a collector when the run has ended.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};

use super::settings::{SenderSettings, TraceSettings};
use super::{batches, read};
use crate::exports::Export;
use crate::providers::client_builder;

/// How long to wait before a request is sent again, if the collector doesn't say.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Sends the spans of a run. Returns warnings: about invalid variables and what the record lacks.
///
/// # Errors
/// Not everything was sent within the time limit: why, in one sentence without secrets.
pub async fn send(export: &Export<'_>, sender: &SenderSettings) -> Result<Vec<String>, String> {
    let deadline = Instant::now() + sender.timeout;
    let (settings, mut warnings) = TraceSettings::new(export.env);
    // The caller's trace isn't recorded.
    if settings.parent.as_ref().is_some_and(|parent| !parent.is_sampled) {
        return Ok(warnings);
    }
    let export = Export { with_content: sender.with_content, ..*export };
    let conversation = read(&export);
    let builder = client_builder(&sender.url, concat!("legwork/", env!("CARGO_PKG_VERSION")));
    let client = builder.build().map_err(|_| {
        "the HTTP client can't be created: check the system's certificates and SSL_CERT_FILE".to_owned()
    })?;
    for batch in batches(&conversation, &settings, sender.with_content) {
        let sent = tokio::time::timeout_at(deadline.into(), post(&client, sender, &batch)).await;
        sent.unwrap_or_else(|_| Err(format!("it took longer than {:?}", sender.timeout)))?;
    }
    warnings.extend(conversation.missing);
    Ok(warnings)
}

/// Sends one request, again while the collector says that it is busy.
async fn post(client: &Client, sender: &SenderSettings, batch: &ExportTraceServiceRequest) -> Result<(), String> {
    let (media_type, body) = match sender.is_json {
        true => ("application/json", serde_json::to_vec(batch).map_err(|error| error.to_string())?),
        false => ("application/x-protobuf", batch.encode_to_vec()),
    };
    let body = bytes::Bytes::from(body);
    loop {
        let request = client.post(sender.url.clone()).headers(sender.headers.clone());
        let response = request.header(CONTENT_TYPE, media_type).body(body.clone()).send().await;
        let response = response.map_err(|error| {
            // The error itself has the address, which can have credentials.
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
            causes.last().map_or_else(|| "the request failed".to_owned(), ToString::to_string)
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let is_busy = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ]
        .contains(&status);
        if !is_busy {
            return Err(format!("the collector replied {status}"));
        }
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        tokio::time::sleep(wait.map_or(RETRY_WAIT, Duration::from_secs)).await;
    }
}

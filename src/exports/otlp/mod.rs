//! OpenTelemetry traces, by the semantic conventions for generative AI, version 0.1.0
//! (<https://github.com/open-telemetry/semantic-conventions-genai>).

pub mod sender;
mod content;
mod settings;
mod spans;

use std::io::Write;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

pub use self::settings::{SenderSettings, TraceSettings};
use super::{Export, ExportError, ExportFormat, write_json};
use crate::conversation::Conversation;

/// OTLP as JSON lines, as OpenTelemetry's file exporter writes it: each line is a request for a collector
/// (<https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/>).
pub const FORMAT: ExportFormat = ExportFormat { name: "otlp", options: &["--with-content"], write };

/// The most spans of one request.
const MAX_BATCH_SPANS: usize = 512;
/// The size in bytes at which a request is complete. Collectors accept at least 4 MiB.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The most characters that are read of each text if spans have no content.
const MAX_CHARS_WITHOUT_CONTENT: usize = 200;

fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<Vec<String>, ExportError> {
    let (settings, mut warnings) = TraceSettings::new(export.env);
    let conversation = read(export);
    for batch in batches(&conversation, &settings, export.with_content) {
        write_json(out, &serde_json::to_string(&batch).map_err(std::io::Error::from)?)?;
    }
    warnings.extend(conversation.missing);
    Ok(warnings)
}

/// Reads what the spans need.
fn read(export: &Export<'_>) -> Conversation {
    export.record.conversation(if export.with_content { None } else { Some(MAX_CHARS_WITHOUT_CONTENT) })
}

/// The requests with all spans of a run.
fn batches<'a>(
    conversation: &'a Conversation,
    settings: &'a TraceSettings,
    with_content: bool,
) -> impl Iterator<Item = ExportTraceServiceRequest> + 'a {
    let mut spans = spans::of_run(conversation, settings, with_content).into_iter().peekable();
    std::iter::from_fn(move || {
        spans.peek()?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < MAX_BATCH_SPANS
            && bytes < MAX_BATCH_BYTES
            && let Some(make) = spans.next()
        {
            let span = make.build();
            bytes += span.encoded_len();
            batch.push(span);
        }
        Some(request(batch, settings))
    })
}

fn request(spans: Vec<Span>, settings: &TraceSettings) -> ExportTraceServiceRequest {
    let resource = Resource { attributes: settings.resource.clone(), ..Resource::default() };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let scope = InstrumentationScope { name: "legwork".to_owned(), version, ..InstrumentationScope::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource_spans = ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
}

//! OpenTelemetry's environment variables
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>,
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>).

use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::content::text_attribute;
use crate::providers::base_url::display_base;
use crate::text::percent_decode;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// The longest that sending may take.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// What all spans of a trace share.
#[derive(Debug, Default)]
pub struct TraceSettings {
    /// The attributes of the resource: the service and its version, and `OTEL_RESOURCE_ATTRIBUTES`.
    pub(super) resource: Vec<KeyValue>,
    /// The span in `TRACEPARENT`, which is the parent of the run's.
    pub(super) parent: Option<TraceParent>,
}

/// A W3C trace context (<https://www.w3.org/TR/trace-context/>).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    pub(super) is_sampled: bool,
    /// `TRACESTATE`.
    pub(super) state: String,
}

impl TraceSettings {
    /// Reads the variables. Invalid values are ignored, each with a warning.
    pub fn new(env: &dyn Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let mut attributes: Vec<(String, String)> = vec![
            ("service.name".to_owned(), "legwork".to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let mut set = |key: String, value: String| match attributes.iter_mut().find(|(known, _)| *known == key) {
            Some(attribute) => attribute.1 = value,
            None => attributes.push((key, value)),
        };
        match pairs(&variable(env, "OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()) {
            Some(pairs) => pairs.into_iter().for_each(|(key, value)| set(key, value)),
            None => {
                warnings.push("OTEL_RESOURCE_ATTRIBUTES is ignored: it isn't like `key=value,key=value`".to_owned());
            }
        }
        if let Some(name) = variable(env, "OTEL_SERVICE_NAME") {
            set("service.name".to_owned(), name);
        }
        let resource = attributes.into_iter().map(|(key, value)| text_attribute(&key, value)).collect();
        let parent = variable(env, "TRACEPARENT").and_then(|value| {
            let parent = TraceParent::parse(&value);
            if parent.is_none() {
                warnings.push("TRACEPARENT is ignored: it isn't a W3C trace context".to_owned());
            }
            let state = variable(env, "TRACESTATE").unwrap_or_default();
            parent.map(|parent| TraceParent { state, ..parent })
        });
        (Self { resource, parent }, warnings)
    }
}

impl TraceParent {
    /// Parses `00-TRACE-SPAN-FLAGS`. Later versions may have further fields.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.trim().split('-');
        let version = hex::<1>(fields.next()?)?[0];
        let trace_id = hex::<16>(fields.next()?).filter(|id| *id != [0; 16])?;
        let span_id = hex::<8>(fields.next()?).filter(|id| *id != [0; 8])?;
        let flags = hex::<1>(fields.next()?)?[0];
        let is_valid = version != 0xff && (version != 0 || fields.next().is_none());
        is_valid.then(|| Self { trace_id, span_id, is_sampled: flags & 1 == 1, state: String::new() })
    }
}

/// Where traces are sent when a run has ended.
pub struct SenderSettings {
    pub(super) url: Url,
    /// The address in messages, without credentials and query.
    pub display_url: String,
    pub(super) headers: HeaderMap,
    pub(super) is_json: bool,
    /// The longest that sending may take.
    pub(super) timeout: Duration,
    pub(super) with_content: bool,
}

impl SenderSettings {
    /// Reads the variables. `None` if they don't ask for traces to be sent.
    ///
    /// # Errors
    /// A variable is invalid: which one, and why. The message has no value of a variable.
    pub fn new(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let is = |name: &str, wanted: &str| variable(env, name).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        if is("OTEL_SDK_DISABLED", "true") {
            return Ok(None);
        }
        // For tools that choose other exporters, such as `console`.
        if variable(env, "OTEL_TRACES_EXPORTER")
            .is_some_and(|names| !names.split(',').any(|name| name.trim() == "otlp"))
        {
            return Ok(None);
        }
        let (name, base, is_base) = match (variable(env, TRACES_ENDPOINT), variable(env, ENDPOINT)) {
            (Some(url), _) => (TRACES_ENDPOINT, url, false),
            (None, Some(url)) => (ENDPOINT, url, true),
            (None, None) => return Ok(None),
        };
        let parsed = Url::parse(&base).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let mut url = parsed.ok_or_else(|| format!("{name} isn't an http or https URL"))?;
        if is_base {
            let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let of_traces = |suffix: &str| {
            let names = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].map(|prefix| format!("{prefix}{suffix}"));
            names.into_iter().find_map(|name| variable(env, &name).map(|value| (name, value)))
        };
        let is_json = match of_traces("PROTOCOL") {
            None => false,
            Some((_, protocol)) if protocol == "http/protobuf" => false,
            Some((_, protocol)) if protocol == "http/json" => true,
            Some((name, _)) => return Err(format!("{name} must be http/protobuf or http/json")),
        };
        let timeout = match of_traces("TIMEOUT") {
            None => DEFAULT_TIMEOUT,
            Some((name, value)) => match value.parse() {
                Ok(ms) => Duration::from_millis(ms).min(MAX_TIMEOUT),
                Err(_) => return Err(format!("{name} must be a number of milliseconds")),
            },
        };
        let headers = match of_traces("HEADERS") {
            None => HeaderMap::new(),
            Some((name, value)) => {
                headers(&value).ok_or_else(|| format!("{name} isn't like `name=value,name=value`"))?
            }
        };
        let display_url = display_base(url.as_str()).unwrap_or_default();
        let capture = variable(env, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").unwrap_or_default();
        let with_content =
            ["true", "span_only", "span_and_event"].iter().any(|value| capture.eq_ignore_ascii_case(value));
        Ok(Some(Self { url, display_url, headers, is_json, timeout, with_content }))
    }

    /// Lowers the longest time that sending may take.
    #[must_use]
    pub fn at_most(self, timeout: Duration) -> Self {
        Self { timeout: self.timeout.min(timeout), ..self }
    }
}

/// A variable that is set and not blank.
fn variable(env: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    Some(env(name)?.trim().to_owned()).filter(|value| !value.is_empty())
}

/// `key=value` pairs with percent-encoded values, separated by commas, as in W3C baggage. `None` if a pair has no key.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let key = key.trim();
            (!key.is_empty()).then(|| (key.to_owned(), percent_decode(value.trim())))
        })
        .collect()
}

fn headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(text)? {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
    }
    Some(headers)
}

/// Decodes lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = text.len() == 2 * N && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate().filter(|_| is_hex) {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    is_hex.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        move |name| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn a_trace_context_is_parsed_as_the_standard_says() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = TraceParent::parse(valid).unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7], parent.is_sampled), (0x0a, 0x31, true));
        assert!(!TraceParent::parse(&valid.replace("-01", "-00")).unwrap().is_sampled);
        assert!(TraceParent::parse(&format!("{}-what-comes", valid.replacen("00", "cc", 1))).is_some());
        for invalid in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c8031\u{e9}-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_variables_say_whether_and_where_to_send() {
        let url = |variables: &[(&str, &str)]| {
            SenderSettings::new(&with(variables)).map(|sender| sender.map(|sender| sender.url.to_string()))
        };
        let url_of = |variables: &[(&str, &str)]| url(variables).unwrap().unwrap();
        assert_eq!(url(&[]), Ok(None));
        assert_eq!(url_of(&[(ENDPOINT, "http://collector:4318")]), "http://collector:4318/v1/traces");
        assert_eq!(url_of(&[(ENDPOINT, "https://collector/otlp/")]), "https://collector/otlp/v1/traces");
        assert_eq!(url_of(&[(ENDPOINT, "http://a"), (TRACES_ENDPOINT, "http://b/c")]), "http://b/c");
        assert_eq!(url(&[(ENDPOINT, "http://a"), ("OTEL_SDK_DISABLED", "True")]), Ok(None));
        assert_eq!(url(&[(ENDPOINT, "http://a"), ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        for (name, value) in [
            (ENDPOINT, "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a b=secret"),
        ] {
            let error = url(&[(name, value), (TRACES_ENDPOINT, if name == ENDPOINT { "" } else { "http://a" })]);
            let error = error.unwrap_err();
            assert!(error.starts_with(name) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn headers_are_decoded_and_marked_as_secrets() {
        let env = with(&[(ENDPOINT, "http://u:p@a?k=v"), ("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%20b, x = y=z ")]);
        let sender = SenderSettings::new(&env).unwrap().unwrap();
        assert_eq!(
            (&sender.headers["api-key"], &sender.headers["x"]),
            (&"a b".parse().unwrap(), &"y=z".parse().unwrap())
        );
        assert!(sender.headers.values().all(HeaderValue::is_sensitive));
        assert!(!sender.display_url.contains("u:p") && !sender.display_url.contains("k=v"), "{}", sender.display_url);
    }

    #[test]
    fn the_resource_has_the_service_and_the_users_attributes() {
        let env = with(&[("OTEL_RESOURCE_ATTRIBUTES", "team=a%2Cb,service.name=x"), ("OTEL_SERVICE_NAME", "nightly")]);
        let (settings, warnings) = TraceSettings::new(&env);
        let expected = [("service.name", "nightly"), ("service.version", env!("CARGO_PKG_VERSION")), ("team", "a,b")];
        let expected: Vec<KeyValue> = expected.iter().map(|(key, value)| text_attribute(key, *value)).collect();
        assert_eq!((settings.resource, warnings), (expected, vec![]));
        let (_, warnings) = TraceSettings::new(&with(&[("OTEL_RESOURCE_ATTRIBUTES", "team"), ("TRACEPARENT", "x")]));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}

//! Recognizes replies of an API other than the requested one, and explains how to use that API.

use serde_json::Value;

use crate::providers::errors::classification::{ErrorClassifier, display_model};
use crate::providers::spec::{ApiSignature, ProviderSpec};
use crate::providers::transport::retry::FailedAttempt;

/// Ollama's own API, which no provider speaks. Ollama also has a common API below `/v1`.
const OLLAMA: ApiSignature = ApiSignature { name: "Ollama's own API", matches: is_ollama };

fn is_ollama(value: &Value) -> bool {
    value.get("done").is_some_and(Value::is_boolean)
        && (value.get("message").is_some_and(Value::is_object) || value.get("response").is_some())
}

impl ErrorClassifier<'_> {
    /// The error for a body, or the first event of a stream, that is a reply of another API. `None` for anything else.
    pub(crate) fn other_api(self, body: &str) -> Option<FailedAttempt> {
        // In a stream of JSON values, or a streamed list, the first value is on the first line.
        let first = body.trim_start().lines().next().unwrap_or_default();
        let value: Value = serde_json::from_str(body).or_else(|_| serde_json::from_str(first)).ok()?;
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(&value);
        let known = self.endpoint.providers.iter().filter_map(|spec| Some((Some(spec), spec.api?)));
        let (spec, api) = known.chain([(None, OLLAMA)]).find(|(_, api)| (api.matches)(value))?;
        let own_api = self.endpoint.labels.names.api;
        let what = format!("{} answered as {} does, not as {own_api}", self.endpoint.display_url, api.name);
        (api.name != own_api).then(|| FailedAttempt::unrecognized(what, self.other_api_hint(spec)))
    }

    fn common_api(self) -> Option<&'static ProviderSpec> {
        self.endpoint.providers.iter().find(|spec| spec.is_common_api)
    }

    fn other_api_hint(self, spec: Option<&'static ProviderSpec>) -> String {
        let labels = &self.endpoint.labels;
        let suffix = if spec.is_none() { ", with an address that ends with /v1" } else { "" };
        let Some(spec) = spec.or_else(|| self.common_api()) else {
            return format!("legwork doesn't speak it; is {} right?", labels.base_url_source);
        };
        let model = display_model(self.model);
        match (&labels.server, spec.default_endpoint) {
            (Some((server, file)), _) => format!("write `api = \"{}\"` for `{server}` in {file}{suffix}", spec.name),
            (None, Some(home)) if home.base_url_env != labels.base_url_source => {
                format!("put the address into {} and name the model `{}/{model}`{suffix}", home.base_url_env, spec.name)
            }
            (None, _) => format!("name the model `{}/{model}`{suffix}", spec.name),
        }
    }

    /// A hint, with a leading space, for an address that serves nothing.
    pub(crate) fn address_hint(self) -> String {
        let labels = &self.endpoint.labels;
        let common = self.common_api().filter(|spec| spec.api.is_some_and(|api| api.name != labels.names.api));
        match (common, &labels.server) {
            _ if self.endpoint.is_at_root() => {
                " Most servers have it below /v1: let the address end with that".to_owned()
            }
            (None, _) => String::new(),
            (Some(spec), Some(_)) => format!(" Many servers speak only Chat Completions: `api = \"{}\"`", spec.name),
            (Some(spec), None) => format!(" Many servers speak only Chat Completions: `{}/MODEL`", spec.name),
        }
    }
}

//! A model as a job names it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attachment::MediaSupport;
use crate::job::{ServiceTier, Thinking};

/// A model as a job names it: `provider/name` and its options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// The name of the provider, such as `anthropic`, or of a server in `providers.toml`.
    pub provider: String,
    /// The model's name as the provider knows it; for `replay` a path.
    pub name: String,
    /// How much the model thinks before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// The sampling temperature; its range depends on the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Stop sequences: texts at which a reply ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How the provider processes requests; the standard way if it isn't set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<ServiceTier>,
    /// The size of the context window in tokens, where the job sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Set where `provider` names a server in `providers.toml` instead of a built-in provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerInfo>,
    /// Which files it takes, if `providers.toml` says so. Otherwise the table of models does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepts: Option<MediaSupport>,
}

/// Which API a server in `providers.toml` speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// The built-in provider whose API it speaks.
    pub api: String,
    /// Whether this is the provider's own address, which serves that provider's models only.
    pub is_official: bool,
}

impl Model {
    /// A model without options.
    pub fn new(provider: impl Into<String>, name: impl Into<String>) -> Self {
        Self { provider: provider.into(), name: name.into(), ..Self::default() }
    }

    /// Whether both name the same model, regardless of options.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.provider, &self.name) == (&other.provider, &other.name)
    }

    /// Whether requests are processed at about half the price, later, and only while there is room.
    pub fn is_flex(&self) -> bool {
        self.tier == Some(ServiceTier::Flex)
    }

    /// The options that are set, as keys and values of a job file.
    pub fn explicit_options(&self) -> Vec<(&'static str, String)> {
        let word = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut options = Vec::new();
        options.extend(self.thinking.map(|thinking| ("thinking", word(serde_json::json!(thinking)))));
        options.extend(self.temperature.map(|temperature| ("temperature", temperature.to_string())));
        if !self.stop.is_empty() {
            options.push(("stop", serde_json::json!(self.stop).to_string()));
        }
        options.extend(self.tier.map(|tier| ("tier", word(serde_json::json!(tier)))));
        options.extend(self.context.map(|context| ("context", context.to_string())));
        options
    }
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_as_in_a_job() {
        let shown = |model: Model| {
            model.explicit_options().iter().map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(shown(Model::new("anthropic", "x")), none);
        let model = Model {
            thinking: Some(Thinking::Low),
            temperature: Some(0.0),
            stop: vec!["END".to_owned(), "\"".to_owned()],
            tier: Some(ServiceTier::Flex),
            context: Some(32_000),
            ..Model::new("anthropic", "x")
        };
        assert_eq!(
            shown(model),
            ["thinking: low", "temperature: 0", r#"stop: ["END","\""]"#, "tier: flex", "context: 32000"]
        );
    }
}

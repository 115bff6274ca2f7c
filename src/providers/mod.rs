//! Providers, the sources of replies. A new provider is one folder here and one line in [`PROVIDERS`]. What its models
//! support is in the tables of [`crate::models`].

pub mod anthropic;
mod api;
mod api_key;
mod assembler;
mod attachments;
pub mod base_url;
#[cfg(test)]
mod captured_stream_tests;
mod client_certificate;
#[cfg(test)]
mod conformance_tests;
mod env_config;
mod errors;
pub mod gemini;
mod inline_thinking;
mod json;
mod model;
pub mod openai;
pub mod openai_chat;
mod openai_platform;
pub mod replay;
mod spec;
mod surrogates;
#[cfg(test)]
mod test_server;
mod tool_calls;
mod transport;
mod unsupported_options;
pub mod user_servers;

pub use self::api::{
    Contact, Conversation, ConversationConfig, Provider, ProviderError, ProviderErrorKind, ReplyRequest, Retry,
    ServerCheck, StreamObserver,
};
pub(crate) use self::client_certificate::read_identity;
pub use self::model::{Model, ServerInfo};
pub use self::spec::{ConnectContext, DefaultEndpoint, ProviderSpec, SettingsContext};
pub(crate) use self::transport::endpoint::bypasses_proxy;
pub(crate) use self::transport::http::client_builder;
pub(crate) use self::transport::transport_error::root_cause;
pub use self::unsupported_options::{RequestOptions, UnsupportedOption};
use crate::attachment::{Attachment, MediaSupport};
use crate::models::{Capabilities, Retirement, find_retirement, identify_vendor};
use crate::pricing::PriceKey;

/// Every provider that a job can name.
pub static PROVIDERS: &[ProviderSpec] = &[anthropic::SPEC, openai::SPEC, openai_chat::SPEC, gemini::SPEC, replay::SPEC];

/// The provider with that name.
pub fn find(name: &str) -> Option<&'static ProviderSpec> {
    PROVIDERS.iter().find(|spec| spec.name == name)
}

impl ProviderSpec {
    /// Whether its replies come from a file, so that it needs no network and no key, and costs nothing.
    pub fn is_scripted(&self) -> bool {
        self.default_endpoint.is_none()
    }
}

impl Model {
    /// The built-in provider that speaks its API.
    pub fn spec(&self) -> Option<&'static ProviderSpec> {
        find(self.server.as_ref().map_or(&self.provider, |server| &server.api))
    }

    /// Whether its replies come from a file, so that it needs no network and no key, and costs nothing.
    pub fn is_scripted(&self) -> bool {
        self.spec().is_some_and(ProviderSpec::is_scripted)
    }

    /// The name of the source of its replies: models of one provider share a source, but each script is its own.
    pub fn reply_source(&self) -> String {
        if self.is_scripted() { self.to_string() } else { self.provider.clone() }
    }

    /// Whether an unknown name is acceptable, because most servers with this API have models of their own.
    pub fn allows_unknown_names(&self) -> bool {
        match &self.server {
            Some(server) => !server.is_official,
            None => self.spec().is_some_and(|spec| spec.is_common_api),
        }
    }

    /// The vendor in the price table that may have its price; empty for none.
    pub fn price_provider(&self) -> &str {
        self.price_key().price_provider
    }

    /// The key for looking up its price. The vendor's price may apply on any server: gateways charge about as much.
    pub fn price_key(&self) -> PriceKey<'_> {
        let own_vendor = self.spec().map_or("", |spec| spec.vendor);
        let (price_provider, price_model) = match identify_vendor(&self.name) {
            Some(identified) if self.allows_unknown_names() => identified,
            // A provider's own address has no models of other vendors, even if the price table lists some.
            Some((vendor, _)) if vendor != own_vendor => ("", &*self.name),
            _ => (own_vendor, &*self.name),
        };
        PriceKey { provider: &self.provider, name: &self.name, price_provider, price_model, is_flex: self.is_flex() }
    }

    /// Which files it takes: as `providers.toml` or the table of models says. A script takes all.
    pub fn media(&self) -> MediaSupport {
        if let Some(accepts) = self.accepts {
            return accepts;
        }
        if self.is_scripted() {
            return MediaSupport::ALL;
        }
        let Some((vendor, _)) = identify_vendor(&self.name) else { return MediaSupport::default() };
        let found = self.capabilities();
        // The vendor's own server takes what few other servers with its API do.
        let is_at_home = !self.name.contains('/') && self.server.as_ref().is_none_or(|server| server.is_official);
        let takes_pdfs = self.spec().is_none_or(|spec| spec.takes_pdfs || (is_at_home && spec.vendor == vendor));
        MediaSupport {
            images: found.image_tokens.is_some(),
            gifs: found.image_tokens.is_some() && self.takes_gifs(),
            pdfs: found.pdf_page_tokens.is_some() && takes_pdfs,
        }
    }

    /// Whether it takes GIF images if it takes images: its API and that of its vendor do.
    pub fn takes_gifs(&self) -> bool {
        let vendor = identify_vendor(&self.name).map(|(vendor, _)| vendor);
        let of_vendor = PROVIDERS.iter().find(|spec| Some(spec.vendor) == vendor);
        self.spec().into_iter().chain(of_vendor).all(|spec| spec.takes_gifs)
    }

    /// The tokens that an image or a document takes, estimated.
    pub fn attachment_tokens(&self, attachment: &Attachment) -> u64 {
        self.capabilities().attachment_tokens(attachment)
    }

    fn capabilities(&self) -> Capabilities {
        let (vendor, name) = identify_vendor(&self.name).unwrap_or_default();
        Capabilities::of(vendor, name)
    }

    /// Whether its server can keep the start of a prompt in a cache for an hour, if the request asks for it.
    pub fn has_hour_cache(&self) -> bool {
        let vendor = identify_vendor(&self.name).map(|(vendor, _)| vendor);
        self.spec().is_some_and(|spec| spec.has_hour_cache && Some(spec.vendor) == vendor)
    }

    /// Whether its thinking may be sent back only if the preceding messages are unchanged.
    pub fn has_prefix_bound_thinking(&self) -> bool {
        Capabilities::has_prefix_bound_thinking(&self.name)
    }

    /// The output tokens of one reply by default, where an agent gets `base`: more if the model always thinks, or thinks very
    /// much if it and its window allow that.
    pub fn default_max_tokens(&self, base: u32) -> u32 {
        let PriceKey { price_provider, price_model, .. } = self.price_key();
        let found = Capabilities::of(price_provider, price_model);
        if !found.is_known {
            return base;
        }
        let wanted = base.saturating_add(found.thinking.default_room(self.thinking));
        let window = self.context.map_or(u32::MAX, |window| u32::try_from(window / 4).unwrap_or(u32::MAX));
        wanted.min(found.max_output_tokens.unwrap_or(u32::MAX)).min(window).max(base)
    }

    /// The retirement that its vendor has announced, if it is used at its vendor.
    pub fn retirement(&self) -> Option<&'static Retirement> {
        let own_vendor = self.spec()?.vendor;
        let is_at_vendor = !self.allows_unknown_names() || self.server.is_none() && !self.name.contains('/');
        let is_own = identify_vendor(&self.name).is_some_and(|(vendor, _)| vendor == own_vendor);
        find_retirement(&self.name).filter(|_| is_at_vendor && is_own)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::job::Thinking;
    use crate::models::Retirement;
    use crate::pricing::Prices;

    #[test]
    fn each_retirement_is_complete() {
        let mut seen = HashSet::new();
        for (row, name) in Retirement::all() {
            assert!(row.date.parse::<jiff::civil::Date>().is_ok() && row.source.starts_with("https://"), "{row:?}");
            let (vendor, _) = identify_vendor(row.replacement).unwrap();
            let spec = PROVIDERS.iter().find(|spec| spec.vendor == vendor && !spec.is_common_api).unwrap();
            let replacement = Model::new(spec.name, row.replacement);
            assert!(Prices::new().has_price(replacement.price_key()) && replacement.retirement().is_none(), "{row:?}");
            assert!(seen.insert(name), "{name} is there twice");
            assert_eq!(identify_vendor(name).map(|(vendor, _)| vendor), Some(vendor), "{name}");
            assert!(Model::new(spec.name, name).retirement().is_some(), "{name}");
        }
    }

    #[test]
    fn models_that_always_think_get_longer_replies() {
        let tokens = |provider: &str, name: &str, thinking, context| {
            Model { thinking, context, ..Model::new(provider, name) }.default_max_tokens(8_000)
        };
        for (provider, name, expected) in [
            ("anthropic", "claude-sonnet-4-5", 8_000),
            ("anthropic", "claude-sonnet-5-5", 8_000),
            ("anthropic", "claude-opus-5-5", 24_000),
            ("openai", "gpt-5.4", 8_000),
            ("openai", "o3", 24_000),
            ("openai-chat", "anthropic/claude-opus-5.5", 24_000),
            ("gemini", "gemini-2.5-pro", 24_000),
            ("gemini", "gemini-2.5-flash", 8_000),
            ("openai-chat", "somebodys-own", 8_000),
        ] {
            assert_eq!(tokens(provider, name, None, None), expected, "{name}");
        }
        assert_eq!(tokens("openai", "gpt-5.4", Some(Thinking::XHigh), None), 40_000);
        assert_eq!(tokens("anthropic", "claude-opus-5-5", None, Some(50_000)), 12_500, "a quarter of the window");
        assert_eq!(tokens("anthropic", "claude-opus-5-5", None, Some(20_000)), 8_000);
    }

    #[test]
    fn only_the_vendor_retires_a_model() {
        let retired = |provider: &str, name: &str| Model::new(provider, name).retirement().map(|row| row.date);
        assert_eq!(retired("anthropic", "claude-sonnet-4-5"), Some("2026-11-30"));
        assert_eq!(retired("openai-chat", "gpt-4o"), Some("2027-01-14"));
        assert_eq!(retired("openai-chat", "openai/gpt-4o"), None);
        assert_eq!(retired("anthropic", "claude-haiku-4-5"), None);
        let at = |is_official| {
            let server = Some(ServerInfo { api: "anthropic".to_owned(), is_official });
            Model { server, ..Model::new("mine", "claude-opus-4-1") }.retirement().is_some()
        };
        assert_eq!((at(true), at(false)), (true, false));
    }
}

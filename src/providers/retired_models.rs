//! Models that their makers have retired, or have announced to retire.
//!
//! From the makers' own lists, as of 23 November 2026:
//! <https://platform.claude.com/docs/en/about-claude/model-deprecations>,
//! <https://developers.openai.com/api/docs/deprecations> and <https://ai.google.dev/gemini-api/docs/deprecations>. What a list
//! gives only an earliest date for isn't here. Clouds have dates of their own.

use super::{Model, openai_chat};
use crate::pricing::vendor;

/// A maker's list.
const ANTHROPIC: &str = "https://platform.claude.com/docs/en/about-claude/model-deprecations";
const OPENAI: &str = "https://developers.openai.com/api/docs/deprecations";
const GOOGLE: &str = "https://ai.google.dev/gemini-api/docs/deprecations";

/// Models that are turned off on the same day, and what takes their place.
#[derive(Debug)]
pub struct Retirement {
    /// Their names, aliases included.
    names: &'static [&'static str],
    /// The day from which requests fail.
    pub date: &'static str,
    /// A newer model of that kind, as a rule the one that the maker recommends.
    pub replacement: &'static str,
    /// Where the maker says so.
    pub source: &'static str,
}

const fn row(
    date: &'static str,
    names: &'static [&'static str],
    replacement: &'static str,
    source: &'static str,
) -> Retirement {
    Retirement { names, date, replacement, source }
}

/// All of them.
#[rustfmt::skip]
static RETIREMENTS: &[Retirement] = &[
    row("2024-11-06", &["claude-1.0", "claude-1.1", "claude-1.2", "claude-1.3", "claude-instant-1.0", "claude-instant-1.1", "claude-instant-1.2"], "claude-haiku-5-5", ANTHROPIC),
    row("2025-07-21", &["claude-2.0", "claude-2.1", "claude-3-sonnet-20240229"], "claude-sonnet-5-5", ANTHROPIC),
    row("2025-10-28", &["claude-3-5-sonnet-20240620", "claude-3-5-sonnet-20241022", "claude-3-5-sonnet-latest"], "claude-sonnet-5-5", ANTHROPIC),
    row("2026-01-05", &["claude-3-opus-20240229", "claude-3-opus-latest"], "claude-opus-5-5", ANTHROPIC),
    row("2026-02-19", &["claude-3-7-sonnet-20250219", "claude-3-7-sonnet-latest"], "claude-sonnet-5-5", ANTHROPIC),
    row("2026-02-19", &["claude-3-5-haiku-20241022", "claude-3-5-haiku-latest"], "claude-haiku-5-5", ANTHROPIC),
    row("2026-04-20", &["claude-3-haiku-20240307"], "claude-haiku-5-5", ANTHROPIC),
    row("2026-06-15", &["claude-opus-4-20250514", "claude-opus-4-0"], "claude-opus-5-5", ANTHROPIC),
    row("2026-06-15", &["claude-sonnet-4-20250514", "claude-sonnet-4-0"], "claude-sonnet-5-5", ANTHROPIC),
    row("2026-08-05", &["claude-opus-4-1-20250805", "claude-opus-4-1"], "claude-opus-5-5", ANTHROPIC),
    row("2026-11-30", &["claude-sonnet-4-5-20250929", "claude-sonnet-4-5"], "claude-sonnet-5-5", ANTHROPIC),

    row("2026-10-23", &["gpt-3.5-turbo", "gpt-3.5-turbo-0125", "o4-mini", "o4-mini-2025-04-16"], "gpt-6.1-terra", OPENAI),
    row("2026-10-23", &["gpt-4", "gpt-4-0613", "gpt-4-1106-preview", "gpt-4-turbo", "gpt-4-turbo-2024-04-09", "gpt-4o-2024-05-13"], "gpt-6.1-sol", OPENAI),
    row("2026-10-23", &["o1", "o1-2024-12-17", "o1-pro", "o1-pro-2025-03-19", "o3-mini", "o3-mini-2025-01-31"], "gpt-6.1-sol", OPENAI),
    row("2026-10-23", &["gpt-4.1-nano", "gpt-4.1-nano-2025-04-14"], "gpt-6-luna", OPENAI),
    row("2026-12-11", &["gpt-5", "gpt-5-2025-08-07", "gpt-5-pro", "gpt-5-pro-2025-10-06"], "gpt-6.1-sol", OPENAI),
    row("2026-12-11", &["gpt-5-mini", "gpt-5-mini-2025-08-07"], "gpt-6.1-terra", OPENAI),
    row("2026-12-11", &["gpt-5-nano", "gpt-5-nano-2025-08-07"], "gpt-6-luna", OPENAI),
    row("2026-12-11", &["o3", "o3-2025-04-16", "o3-pro", "o3-pro-2025-06-10"], "gpt-6.1-sol", OPENAI),
    row("2027-01-14", &["gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-2024-11-20", "gpt-4o-mini", "gpt-4o-mini-2024-07-18"], "gpt-6-luna", OPENAI),
    row("2027-01-14", &["gpt-4.1", "gpt-4.1-2025-04-14", "gpt-4.1-mini", "gpt-4.1-mini-2025-04-14"], "gpt-6-luna", OPENAI),

    row("2025-12-02", &["gemini-2.5-pro-preview-03-25", "gemini-2.5-pro-preview-05-06", "gemini-2.5-pro-preview-06-05"], "gemini-3.1-pro-preview", GOOGLE),
    row("2026-03-09", &["gemini-3-pro-preview"], "gemini-3.1-pro-preview", GOOGLE),
    row("2026-06-01", &["gemini-2.0-flash", "gemini-2.0-flash-001"], "gemini-3.5-flash", GOOGLE),
    row("2026-06-01", &["gemini-2.0-flash-lite", "gemini-2.0-flash-lite-001"], "gemini-3.5-flash-lite", GOOGLE),
    row("2026-12-01", &["gemini-2.5-pro"], "gemini-3.8-flash", GOOGLE),
    row("2026-12-01", &["gemini-2.5-flash"], "gemini-3.5-flash-lite", GOOGLE),
];

impl Model {
    /// What its maker says of its end, where it is asked at its maker.
    pub fn retirement(&self) -> Option<&'static Retirement> {
        let at_openai = self.server.is_none() && self.provider == openai_chat::SPEC.name && !self.name.contains('/');
        let is_at_maker = if self.allows_unknown_names() {
            at_openai && vendor::identify(&self.name).is_some_and(|(list, _)| list == "openai")
        } else {
            vendor::identify(&self.name)
                .is_some_and(|(list, _)| self.spec().is_some_and(|entry| entry.price_provider == list))
        };
        let named = |retired: &&Retirement| retired.names.contains(&self.name.as_str());
        RETIREMENTS.iter().find(named).filter(|_| is_at_maker)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::ServerInfo;
    use super::*;
    use crate::pricing::Prices;

    #[test]
    fn each_row_is_whole() {
        let mut seen = HashSet::new();
        for row in RETIREMENTS {
            assert!(row.date.parse::<jiff::civil::Date>().is_ok() && row.source.starts_with("https://"), "{row:?}");
            let (list, _) = vendor::identify(row.replacement).unwrap();
            let provider = if list == "google" { "gemini" } else { list };
            let replacement = Model::new(provider, row.replacement);
            assert!(Prices::new().has_price(replacement.price_key()) && replacement.retirement().is_none(), "{row:?}");
            for name in row.names {
                assert!(seen.insert(name), "{name} is there twice");
                assert_eq!(vendor::identify(name).map(|(list, _)| list), Some(list), "{name}");
                assert!(Model::new(provider, *name).retirement().is_some(), "{name}");
            }
        }
    }

    #[test]
    fn only_the_maker_retires_a_model() {
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

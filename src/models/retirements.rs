//! Models that their vendors have retired or will retire.
//!
//! The data is from the vendors' own lists, as of 23 November 2026. Models with only an earliest date are omitted.
//! Clouds have other dates.

/// The vendors' lists.
const ANTHROPIC: &str = "https://platform.claude.com/docs/en/about-claude/model-deprecations";
const OPENAI: &str = "https://developers.openai.com/api/docs/deprecations";
const GOOGLE: &str = "https://ai.google.dev/gemini-api/docs/deprecations";

/// Models that are turned off on the same day, and their replacement.
#[derive(Debug)]
pub struct Retirement {
    /// Their names, including aliases.
    pub(super) names: &'static [&'static str],
    /// The day from which requests fail.
    pub date: &'static str,
    /// A newer model of the same kind, usually the one that the vendor recommends.
    pub replacement: &'static str,
    /// The vendor's announcement.
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

/// The retirements, by vendor and date.
#[rustfmt::skip]
pub(super) static RETIREMENTS: &[Retirement] = &[
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

/// The retirement of a model, by the vendor's own name for it.
pub fn find_retirement(name: &str) -> Option<&'static Retirement> {
    RETIREMENTS.iter().find(|retirement| retirement.names.contains(&name))
}

impl Retirement {
    /// The names of all retired models.
    pub fn all() -> impl Iterator<Item = (&'static Self, &'static str)> {
        RETIREMENTS.iter().flat_map(|row| row.names.iter().map(move |name| (row, *name)))
    }
}

//! The vendors of models, by their names.

use super::capabilities::Capabilities;
use super::price_table::{self, PriceTable};
use super::table::{
    CLAUDE_DEFAULTS, CLAUDE_ROWS, GEMINI_DEFAULTS, GEMINI_ROWS, GPT_DEFAULTS, GPT_ROWS, NameParts, Row, split_claude,
    split_gemini, split_gpt,
};

/// A vendor of models.
pub struct Vendor {
    /// Its id in the price table.
    pub id: &'static str,
    /// The prefixes of its models' names.
    prefixes: &'static [&'static str],
    /// Its part of the price table; see [`crate::pricing`].
    pub price_table: &'static PriceTable,
    pub(super) split_name: fn(&str) -> NameParts,
    pub(super) rows: &'static [Row],
    pub(super) defaults: Capabilities,
}

/// All vendors whose models are known.
pub static VENDORS: [Vendor; 3] = [
    Vendor {
        id: "anthropic",
        prefixes: &["claude-"],
        price_table: &price_table::ANTHROPIC,
        split_name: split_claude,
        rows: CLAUDE_ROWS,
        defaults: CLAUDE_DEFAULTS,
    },
    Vendor {
        id: "openai",
        prefixes: &["gpt-", "chatgpt-", "o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9"],
        price_table: &price_table::OPENAI,
        split_name: split_gpt,
        rows: GPT_ROWS,
        defaults: GPT_DEFAULTS,
    },
    Vendor {
        id: "google",
        prefixes: &["gemini-"],
        price_table: &price_table::GOOGLE,
        split_name: split_gemini,
        rows: GEMINI_ROWS,
        defaults: GEMINI_DEFAULTS,
    },
];

impl Vendor {
    /// The vendor with that id.
    pub fn find(id: &str) -> Option<&'static Self> {
        VENDORS.iter().find(|vendor| vendor.id == id)
    }
}

/// The id of a model's vendor, and the vendor's own name for the model. Gateways and clouds add prefixes
/// (`anthropic/claude-sonnet-4-5`, `us.anthropic.claude-sonnet-4-5-20250929-v1:0`), and LiteLLM's routes are paths.
/// `None` if the vendor is unknown.
pub fn identify_vendor(name: &str) -> Option<(&'static str, &str)> {
    let last = name.rsplit('/').next().unwrap_or_default();
    let own = last.rsplit_once("anthropic.").map_or(last, |(_, own)| own);
    let vendor = VENDORS.iter().find(|vendor| vendor.prefixes.iter().any(|prefix| own.starts_with(prefix)))?;
    Some((vendor.id, own))
}

#[cfg(test)]
mod tests {
    use super::identify_vendor;

    #[test]
    fn vendors_are_identified_behind_any_prefix() {
        for (name, expected) in [
            ("claude-sonnet-4-5", Some(("anthropic", "claude-sonnet-4-5"))),
            ("anthropic/claude-opus-4.5", Some(("anthropic", "claude-opus-4.5"))),
            ("bedrock/us.anthropic.claude-haiku-4-5-v1:0", Some(("anthropic", "claude-haiku-4-5-v1:0"))),
            ("vertex/google/gemini-2.5-pro", Some(("google", "gemini-2.5-pro"))),
            ("openai/o4-mini", Some(("openai", "o4-mini"))),
            ("gpt-5.1", Some(("openai", "gpt-5.1"))),
            ("olmo-2", None),
            ("my-claude", None),
            ("", None),
        ] {
            assert_eq!(identify_vendor(name), expected, "{name}");
        }
    }
}

//! Tables of facts about models, by name: vendors, options, limits and retirements.

mod capabilities;
mod image_tokens;
mod price_table;
mod retirements;
mod table;
pub(crate) mod token_estimate;
mod vendor;

pub use self::capabilities::{
    Capabilities, ChatTools, DEFAULT_TEMPERATURE, TemperatureSupport, ThinkingControl, ThinkingOff, ThinkingSupport,
    effort_name,
};
pub use self::image_tokens::ImageTokens;
pub use self::retirements::{Retirement, find_retirement};
pub use self::vendor::{VENDORS, Vendor, identify_vendor};

/// Windows that the price table lacks: vendor, model and tokens (<https://ai.google.dev/gemini-api/docs/models>,
/// November 2026). They are limits on the prompt, as Gemini's replies have a separate limit.
pub(crate) const WINDOWS: [(&str, &str, u64); 3] = [
    ("google", "gemini-2.5-pro", 1_048_576),
    ("google", "gemini-3-pro-preview", 1_048_576),
    ("google", "gemini-3.1-pro-preview", 1_048_576),
];

/// OpenAI's prompt limits below the window: the start of the name, the minimum window in the table, and the limit
/// (<https://developers.openai.com/api/docs/models>, November 2026). The rest is reserved for the reply, however short.
const PROMPT_LIMITS: [(&str, u64, u64); 3] =
    [("gpt-5", 400_000, 272_000), ("gpt-5.", 1_000_000, 922_000), ("gpt-6", 1_000_000, 922_000)];

impl Capabilities {
    /// The capabilities of a vendor's model: for each fact, the first row of the table that matches the name.
    pub fn of(vendor: &str, name: &str) -> Self {
        match Vendor::find(vendor) {
            Some(vendor) => table::resolve(vendor.rows, vendor.defaults, &(vendor.split_name)(name)),
            None => table::GPT_DEFAULTS,
        }
    }

    /// Whether a model of any vendor has prefix-bound thinking, over any API.
    ///
    /// If the preceding messages have changed, newer Claude models refuse the request. OpenAI's drop such reasoning
    /// themselves (<https://developers.openai.com/api/docs/guides/keep-prefix-unchanged>), and Gemini requires
    /// signatures on the calls of the current turn, whatever precedes them
    /// (<https://ai.google.dev/gemini-api/docs/thought-signatures>): both are always sent back.
    pub fn has_prefix_bound_thinking(name: &str) -> bool {
        VENDORS.iter().any(|vendor| Self::of(vendor.id, name).has_prefix_bound_thinking)
    }
}

/// The context window of a model without one in the price table.
pub fn context_window(vendor: &str, id: &str) -> Option<u64> {
    WINDOWS.into_iter().find(|(known, name, _)| (*known, *name) == (vendor, id)).map(|(.., window)| window)
}

/// The maximum number of prompt tokens, if it is less than the window. `id` is the name in the price table.
pub fn prompt_limit(id: &str, window: u64) -> Option<u64> {
    let (_, name) = identify_vendor(id).filter(|(vendor, _)| *vendor == "openai")?;
    // The replies of these models can be longer.
    if name.ends_with("-pro") && window < 1_000_000 {
        return None;
    }
    let fits = |(start, least, _): &(&str, u64, u64)| name.starts_with(start) && window >= *least;
    PROMPT_LIMITS.into_iter().rev().find(fits).map(|(.., most)| most)
}

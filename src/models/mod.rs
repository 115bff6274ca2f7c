//! Tables of facts about models, by name: vendors, options, limits and retirements.

mod capabilities;
mod context_limits;
mod retirements;
mod table;
pub(crate) mod token_estimate;
mod vendor;

pub use self::capabilities::{
    Capabilities, ChatTools, DEFAULT_TEMPERATURE, TemperatureSupport, ThinkingControl, ThinkingOff, ThinkingSupport,
    effort_name,
};
#[cfg(test)]
pub(crate) use self::context_limits::WINDOWS;
pub use self::context_limits::{context_window, prompt_limit};
pub use self::retirements::{Retirement, find_retirement};
pub use self::vendor::{VENDORS, Vendor, identify_vendor};

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

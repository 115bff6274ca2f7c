//! Requests whose end isn't known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requests that were cut off, because the process was killed before their end. What they have used isn't known, so they count
/// as what was reserved for them, which is the most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CutOffRequests {
    /// How many there were.
    pub count: u32,
    /// The tokens that were reserved for them together.
    pub reserved_tokens: u64,
    /// What was reserved for them together in US dollars; null if a price isn't known.
    pub reserved_cost_usd: Option<f64>,
}

impl CutOffRequests {
    /// No requests.
    pub const NONE: Self = Self { count: 0, reserved_tokens: 0, reserved_cost_usd: Some(0.0) };

    /// One request, for which this much was reserved.
    pub fn one(reserved_tokens: u64, reserved_cost_usd: Option<f64>) -> Self {
        Self { count: 1, reserved_tokens, reserved_cost_usd }
    }

    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}

impl Default for CutOffRequests {
    fn default() -> Self {
        Self::NONE
    }
}

impl std::ops::AddAssign for CutOffRequests {
    fn add_assign(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.reserved_tokens = self.reserved_tokens.saturating_add(other.reserved_tokens);
        self.reserved_cost_usd = self.reserved_cost_usd.zip(other.reserved_cost_usd).map(|(one, other)| one + other);
    }
}

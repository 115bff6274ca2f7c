//! Counts of tokens, as servers write them.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A count, which some write as a float; `None` where it is anything else.
///
/// # Errors
/// It is no JSON.
pub(in crate::providers) fn deserialize_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    const MOST: f64 = 1e15;
    let value = Value::deserialize(deserializer)?;
    let whole = || value.as_f64().filter(|number| (0.0..=MOST).contains(number)).map(|number| number as u64);
    Ok(value.as_u64().or_else(whole))
}

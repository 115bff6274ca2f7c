//! The cost of tokens, according to the user's `prices.toml` or the table of the crate genai-prices. These are list
//! prices, so costs are estimates.
//!
//! Decoding the whole table takes about 50 ms, longer than everything else in a short run. So the parts for the vendors
//! in [`crate::models::VENDORS`] are in this folder. A test in `prices.rs` fails when the crate's table has changed.
//! Models of other vendors are looked up in the whole table.

mod model_names;
mod prices;
mod rates;
mod user_prices;

pub use prices::{ModelPricing, Prices, TABLE_DATE, TABLE_VERSION, round_usd};
pub use rates::{PriceKey, Rates, Tier};
pub use user_prices::{PricedProvider, UserPrices};

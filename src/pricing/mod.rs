//! What tokens cost: by the user's `prices.toml`, or by the table of the crate genai-prices. These are list prices, so that costs
//! are estimates.
//!
//! Decoding the whole table takes about 50 ms, longer than everything else in a short run. So the vendors of
//! [`crate::models::VENDORS`] have their part of it in this folder, extracted by the test below, which also fails when the
//! crate's table has changed; all others are looked up in the whole table.

mod embedded_tables;
mod model_names;
mod model_pricing;
mod prices;
mod rates;
mod user_prices;

pub use model_pricing::{ModelPricing, PriceSource};
pub use prices::{Prices, TABLE_DATE, TABLE_VERSION, round_usd};
pub use rates::{PriceKey, Rates, Tier};
pub use user_prices::{PricedProvider, UserPrices};

//! The embedded parts of the price table, one for each vendor.

use std::sync::{LazyLock, OnceLock};

use genai_prices::Calculator;

use crate::models::{VENDORS, Vendor};

/// The part of the price table with one vendor's models.
pub(super) struct EmbeddedTable {
    pub(super) provider: &'static str,
    pub(super) json: &'static str,
    table: OnceLock<Option<Calculator>>,
}

impl EmbeddedTable {
    /// The decoded part; the first caller decodes it.
    pub(super) fn table(&self) -> Option<&Calculator> {
        self.table.get_or_init(|| Calculator::from_json(self.json).ok()).as_ref()
    }
}

pub(super) static EMBEDDED_TABLES: LazyLock<Vec<EmbeddedTable>> = LazyLock::new(|| {
    let table =
        |vendor: &Vendor| EmbeddedTable { provider: vendor.id, json: vendor.price_table, table: OnceLock::new() };
    VENDORS.iter().map(table).collect()
});

/// The embedded table of a vendor.
pub(super) fn embedded_table(provider: &str) -> Option<&'static EmbeddedTable> {
    EMBEDDED_TABLES.iter().find(|part| part.provider == provider)
}

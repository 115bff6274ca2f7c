//! The output of `legwork prices`: its data, and the data as text.

use std::ops::Range;

use serde::Serialize;

use crate::pricing::{TABLE_VERSION, Tier};

/// The output of `legwork prices`. The JSON fields are stable; incompatible changes raise `format`.
#[derive(Debug, Serialize)]
pub(super) struct PricesOutput {
    pub(super) format: u32,
    /// The day for which the prices are shown, in UTC.
    pub(super) date: String,
    /// Where the built-in table comes from.
    pub(super) table: &'static str,
    /// The day on which the table was published.
    pub(super) table_date: &'static str,
    /// The user's prices.toml, if it has prices.
    pub(super) file: Option<String>,
    pub(super) models: Vec<ModelPrice>,
}

/// The price of one model.
#[derive(Debug, Default, Serialize)]
pub(super) struct ModelPrice {
    /// `provider/name`.
    pub(super) model: String,
    /// Where the price comes from; null if it is unknown.
    pub(super) source: Option<ListedSource>,
    /// The model's name in the table; null if the price isn't from the table.
    pub(super) listed_as: Option<String>,
    /// The base URL of requests, without credentials; null if it is the provider's own.
    pub(super) asked_at: Option<String>,
    /// The most tokens of prompt and reply together; null if unknown.
    pub(super) context_window: Option<u64>,
    /// The most tokens of a prompt, if that is less; null if it isn't, or is unknown.
    pub(super) prompt_limit: Option<u64>,
    /// Whether the table lists the price at that base URL.
    #[serde(skip)]
    pub(super) is_of_server: bool,
    /// The rates by prompt length, shortest first; empty if the price is unknown.
    pub(super) rates: Vec<Tier>,
    /// Why the price is unknown; null if it is known.
    pub(super) unknown: Option<&'static str>,
    /// What to do if the price is unknown.
    #[serde(skip)]
    pub(super) help: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListedSource {
    /// The built-in table.
    Table,
    /// The user's prices.toml.
    PricesToml,
    /// No server is used.
    Replay,
}

const HEADINGS: [&str; 5] = ["$ per million tokens", "input", "output", "cache read", "cache write"];

/// Everything known about each model, one after another.
pub(super) fn model_details(output: &PricesOutput) -> String {
    let pages: Vec<String> = output.models.iter().map(|price| model_detail(price, output)).collect();
    pages.join("\n")
}

fn model_detail(price: &ModelPrice, output: &PricesOutput) -> String {
    let mut text = format!("{}\n", price.model);
    let mut line = |name: &str, value: &str| text += &format!("  {name:<8}{value}\n");
    match (price.source, price.unknown) {
        (Some(ListedSource::Table), _) => {
            line("source", &format!("{TABLE_VERSION}, as of {}", output.table_date));
            if let Some(id) = price.listed_as.as_ref().filter(|id| !price.model.ends_with(&format!("/{id}"))) {
                line("listed", &format!("as {id}"));
            }
        }
        (Some(ListedSource::PricesToml), _) => line("source", output.file.as_deref().unwrap_or("prices.toml")),
        (Some(ListedSource::Replay), _) => line("source", "none: replies from a script are free"),
        (None, why) => line("price", &format!("unknown: {}", why.unwrap_or_default())),
    }
    if let Some(address) = &price.asked_at {
        let list = if price.source == Some(ListedSource::Table) && !price.is_of_server {
            " (its prices may differ from these list prices)"
        } else {
            ""
        };
        line("server", &format!("{address}{list}"));
    }
    if let Some(window) = price.context_window {
        let prompt = price.prompt_limit.map(|most| format!(", prompts at most {}", thousands_separated(most)));
        line("window", &format!("{} tokens{}", thousands_separated(window), prompt.unwrap_or_default()));
    }
    if price.rates.is_empty() {
        return text;
    }
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(price.rates.iter().enumerate().map(|(at, tier)| {
        let next = price.rates.get(at + 1).map(|next| thousands_separated(next.above));
        let prompt = match (tier.above, next) {
            (0, None) => "all prompts".to_owned(),
            (_, Some(next)) => format!("prompts up to {next} tokens"),
            (above, None) => format!("prompts over {} tokens", thousands_separated(above)),
        };
        let [input, output, cache_read, cache_write] = tier.rates.each().map(dollars);
        [prompt, input, output, cache_read, cache_write]
    }));
    text + &align_columns(&rows, 1..5, "  ")
}

/// One line per model.
pub(super) fn model_list(output: &PricesOutput) -> String {
    let [model, input, output_rate, cache_read, cache_write] = HEADINGS;
    let mut rows = vec![[model, input, output_rate, cache_read, cache_write, "window", ""].map(str::to_owned)];
    rows.extend(output.models.iter().map(|price| {
        let note = match (price.source, price.unknown, &price.rates[..]) {
            (_, Some(why), _) => why.to_owned(),
            (_, None, [_, second, ..]) => format!("higher above {}", thousands_separated(second.above)),
            (Some(ListedSource::PricesToml), ..) => "prices.toml".to_owned(),
            _ => String::new(),
        };
        let rates = price.rates.first().map(|tier| tier.rates.each().map(dollars));
        let [input, output, cache_read, cache_write] = rates.unwrap_or_else(|| ["-"; 4].map(str::to_owned));
        let window = price.context_window.map_or("-".to_owned(), thousands_separated);
        [price.model.clone(), input, output, cache_read, cache_write, window, note]
    }));
    let text = align_columns(&rows, 1..6, "");
    match output.models.iter().any(|price| price.source == Some(ListedSource::Table)) {
        true => format!("{text}\nsource: {TABLE_VERSION}, as of {}\n", output.table_date),
        false => text,
    }
}

/// A rate with at least two decimals: `3.00`, `0.075`.
fn dollars(rate: f64) -> String {
    let text = format!("{rate:.6}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}.{:0<2}", decimals.trim_end_matches('0'))
}

/// `1,000,000`.
fn thousands_separated(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Aligns cells in columns: those with numbers to the right, others to the left.
pub(in crate::cli) fn align_columns<const N: usize>(
    rows: &[[String; N]],
    numbers: Range<usize>,
    indent: &str,
) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| match numbers.contains(&at) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let cells: Vec<String> = cells.collect();
        format!("{}\n", format!("{indent}{}", cells.join("  ")).trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        assert_eq!([3.0, 0.075, 0.1, 12.5, 0.0].map(dollars), ["3.00", "0.075", "0.10", "12.50", "0.00"]);
        assert_eq!(
            [0, 999, 1_000, 200_000, 1_048_576].map(thousands_separated),
            ["0", "999", "1,000", "200,000", "1,048,576"]
        );
    }
}

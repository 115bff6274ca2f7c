//! Prices as text.

use super::{ListedSource, ModelPrice, PricesOutput, TierRate};
use crate::pricing::TABLE_VERSION;

const HEADINGS: [&str; 4] = ["input", "output", "cache read", "cache write"];

/// One model after the other, each with everything that is known.
pub(super) fn model_details(answer: &PricesOutput) -> String {
    let pages: Vec<String> = answer.models.iter().map(|priced| model_detail(priced, answer)).collect();
    pages.join("\n")
}

fn model_detail(priced: &ModelPrice, answer: &PricesOutput) -> String {
    let mut text = format!("{}\n", priced.model);
    let mut line = |name: &str, value: &str| text += &format!("  {name:<8}{value}\n");
    match (priced.source, &priced.unknown) {
        (Some(ListedSource::Table), _) => {
            line("source", &format!("the table of {TABLE_VERSION}, as of {}", answer.table_date));
            if let Some(id) = priced.listed_as.as_ref().filter(|id| !priced.model.ends_with(&format!("/{id}"))) {
                line("listed", &format!("as {id}"));
            }
        }
        (Some(ListedSource::PricesToml), _) => line("source", answer.file.as_deref().unwrap_or("prices.toml")),
        (Some(ListedSource::Replay), _) => line("source", "none: what a script answers costs nothing"),
        (None, why) => line("price", &format!("unknown: {}", why.as_deref().unwrap_or_default())),
    }
    if let Some(address) = &priced.asked_at {
        let list = if priced.source == Some(ListedSource::Table) && !priced.is_of_server {
            "; these are list prices, and what it takes there may differ"
        } else {
            ""
        };
        line("asked", &format!("at {address}{list}"));
    }
    if let Some(window) = priced.context_window {
        let prompt = priced.prompt_limit.map(|most| format!(", the prompt at most {}", thousands_separated(most)));
        line("window", &format!("{} tokens{}", thousands_separated(window), prompt.unwrap_or_default()));
    }
    if priced.rates.is_empty() {
        return text;
    }
    let rows = priced.rates.iter().enumerate().map(|(at, rate)| {
        let next = priced.rates.get(at + 1).map(|next| thousands_separated(next.above));
        let prompt = match (rate.above, next) {
            (0, None) => "any prompt".to_owned(),
            (_, Some(next)) => format!("up to {next} tokens"),
            (above, None) => format!("more than {} tokens", thousands_separated(above)),
        };
        std::iter::once(prompt).chain(rate_cells(rate)).collect::<Vec<_>>()
    });
    let heading = std::iter::once("$ for a million tokens").chain(HEADINGS).map(str::to_owned).collect();
    text + &align_columns(std::iter::once(heading).chain(rows).collect(), "  ")
}

/// A line for each model.
pub(super) fn model_list(answer: &PricesOutput) -> String {
    let heading =
        ["$ for a million tokens"].into_iter().chain(HEADINGS).chain(["window", ""]).map(str::to_owned).collect();
    let rows = answer.models.iter().map(|priced| {
        let note = match (&priced.source, &priced.unknown, &priced.rates[..]) {
            (_, Some(why), _) => why.clone(),
            (_, None, [_, second, ..]) => format!("dearer above {}", thousands_separated(second.above)),
            (Some(ListedSource::PricesToml), ..) => "prices.toml".to_owned(),
            _ => String::new(),
        };
        let figures = match priced.rates.first() {
            Some(rate) => rate_cells(rate),
            None => HEADINGS.map(|_| "-".to_owned()),
        };
        let window = priced.context_window.map_or("-".to_owned(), thousands_separated);
        std::iter::once(priced.model.clone()).chain(figures).chain([window, note]).collect()
    });
    let text = align_columns(std::iter::once(heading).chain(rows).collect(), "");
    match answer.models.iter().any(|priced| priced.source == Some(ListedSource::Table)) {
        true => format!("{text}\nfrom the table of {TABLE_VERSION}, as of {}\n", answer.table_date),
        false => text,
    }
}

fn rate_cells(rate: &TierRate) -> [String; 4] {
    [rate.input, rate.output, rate.cache_read, rate.cache_write].map(dollars)
}

/// At least two decimals, and as many more as it has: `3.00`, `0.075`.
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

/// Columns, the first and the last but five to the left.
fn align_columns(rows: Vec<Vec<String>>, indent: &str) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Words to the left, numbers to the right.
            line += &match at {
                0 => format!("{cell:<width$}"),
                1..6 => format!("  {cell:>width$}"),
                _ => format!("  {cell}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole() {
        assert_eq!([3.0, 0.075, 0.1, 12.5, 0.0].map(dollars), ["3.00", "0.075", "0.10", "12.50", "0.00"]);
        assert_eq!(
            [0, 999, 1_000, 200_000, 1_048_576].map(thousands_separated),
            ["0", "999", "1,000", "200,000", "1,048,576"]
        );
    }
}

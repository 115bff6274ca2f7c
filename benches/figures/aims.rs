//! All figures that have an aim, in one table at the end.

use std::sync::{Mutex, PoisonError};

struct Figure {
    what: String,
    unit: &'static str,
    aim: f64,
    measured: f64,
    is_minimum: bool,
}

static FIGURES: Mutex<Vec<Figure>> = Mutex::new(Vec::new());

fn add(figure: Figure) {
    FIGURES.lock().unwrap_or_else(PoisonError::into_inner).push(figure);
}

/// Adds a figure that should be at most the aim.
pub(crate) fn at_most(what: &str, aim: f64, measured: f64, unit: &'static str) {
    add(Figure { what: what.to_owned(), unit, aim, measured, is_minimum: false });
}

/// Adds a figure that should be at least the aim.
pub(crate) fn at_least(what: &str, aim: f64, measured: f64, unit: &'static str) {
    add(Figure { what: what.to_owned(), unit, aim, measured, is_minimum: true });
}

/// Prints what was added.
pub(crate) fn print() {
    println!("\n| {:<66} | {:>16} | {:>16} | met |", "all figures with an aim", "aim", "measured");
    println!("|{0:-<68}|{0:->17}:|{0:->17}:|-----|", "");
    for Figure { what, unit, aim, measured, is_minimum } in
        FIGURES.lock().unwrap_or_else(PoisonError::into_inner).iter()
    {
        let shown = |value: f64| match value {
            value if value >= 100.0 => format!("{value:.0} {unit}"),
            value => format!("{value:.2} {unit}"),
        };
        // As precisely as it is shown.
        let round = |value: f64| (value * 100.0).round();
        let is_met = if *is_minimum { round(*measured) >= round(*aim) } else { round(*measured) <= round(*aim) };
        println!(
            "| {what:<66} | {:>16} | {:>16} | {:<3} |",
            shown(*aim),
            shown(*measured),
            if is_met { "yes" } else { "no" }
        );
    }
}

//! Text: truncated, compared, and made safe to print.

pub mod diff;
pub mod sanitize;
pub mod truncate;

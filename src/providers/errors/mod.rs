//! What failed requests mean: the errors that servers answer with, and how each API words them.

pub mod api_detection;
pub mod classification;
pub mod error_body;
pub mod limit_hints;
pub mod litellm;
pub mod unsupported_options;

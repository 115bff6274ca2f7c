//! What failed requests mean: the error objects of all APIs, and the tables that classify them.

pub(crate) mod api_detection;
pub(crate) mod api_error;
pub(crate) mod classification;
mod excerpt;
pub(crate) mod limit_hints;
mod litellm;

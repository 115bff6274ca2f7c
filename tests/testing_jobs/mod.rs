//! Cases of jobs.

pub(crate) mod cases;

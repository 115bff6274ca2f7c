//! Costs and limits.

pub(crate) mod budget;
pub(crate) mod limit_overrides;
pub(crate) mod limits;
pub(crate) mod prices;

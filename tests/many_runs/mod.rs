//! Many runs of one job, and the changes that they made.

pub(crate) mod apply;
pub(crate) mod engines;
pub(crate) mod gather;
pub(crate) mod map;
pub(crate) mod map_example;
pub(crate) mod shared_folder;
pub(crate) mod workspace_changes;

//! Engines that start many processes: which part of the rows a process has to run, and the files that submit a map to an
//! engine.

mod engine;
mod github;
mod gitlab;
mod kubernetes;
mod shard;
mod slurm;
#[cfg(test)]
mod tests;

pub use self::engine::{Engine, MapCommand};
pub use self::shard::{Shard, ShardError};

/// All engines.
pub const ENGINES: &[Engine] = &[slurm::ENGINE, kubernetes::ENGINE, github::ENGINE, gitlab::ENGINE];

/// Finds an engine by its name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.name == name)
}

//! A batch script for Slurm: a job array with one task for each shard.

use minijinja::{Value, context};

use super::engine::{Engine, MapCommand};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "slurm",
    // The greatest `MaxArraySize` that slurm.conf allows.
    max_shards: 4_000_000,
    needs_image: false,
    shares_folder: true,
    is_elsewhere: false,
    publishes: false,
    template: include_str!("slurm.sh.in"),
    values,
};

/// How often a task is requeued at most, so that a provider that is down for a day doesn't requeue it forever.
const MAX_REQUEUES: u32 = 20;

/// The greatest number of tasks in an array unless the cluster raises `MaxArraySize`.
const DEFAULT_MAX_TASKS: u32 = 1_000;

fn values(map: &MapCommand<'_>) -> Value {
    context! { needs_large_array => map.shards > DEFAULT_MAX_TASKS, max_requeues => MAX_REQUEUES }
}

//! A batch script for Slurm: a job array with one task for each shard.

use super::{Engine, MapCommand, RETRYABLE, command_line};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "slurm",
    about: "a batch script for `sbatch`: a job array with one task for each shard",
    // `MaxArraySize` is 1001 unless the cluster raises it (slurm.conf).
    max_shards: 4_000_000,
    needs_image: false,
    emit,
};

/// How often a task is requeued at most, so that a provider that is down for a day doesn't requeue it forever.
const MAX_REQUEUES: u32 = 20;

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, folder, .. } = map;
    let command = command_line(map.words);
    let last = shards.saturating_sub(1);
    format!(
        r#"#!/bin/bash
#SBATCH --job-name={job}
#SBATCH --array=0-{last}
#SBATCH --output={job}-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
# SIGTERM two minutes before the time limit: legwork closes its records, and the task is requeued.
#SBATCH --signal=B:TERM@120
#
# Submit it in the folder in which you run `legwork map`; the folder must be on a file system that all nodes share:
#
#     sbatch --export=ALL FILE
#
# All nodes need the same LEGWORK_RECORD_KEY (32 bytes or more, for example from `openssl rand -hex 32`), so that one node
# can resume the runs of another. When all tasks have ended, collect the results:
#
#     legwork gather {folder}

set -u

{command} --shard auto &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM INT
code=0
wait "$child" || code=$?
# A signal interrupts the first wait.
while kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
done

case $code in
{RETRYABLE} | 129 | 130 | 143)
    # Some row can go on. The others aren't run again.
    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {MAX_REQUEUES} ]; then
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && sleep 60
    fi
    ;;
esac
exit "$code"
"#
    )
}

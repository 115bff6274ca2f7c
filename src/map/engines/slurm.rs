//! A batch script for Slurm: a job array with one task for each shard.

use super::engine::{Engine, MapCommand, RETRYABLE, command_line, shell_word};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "slurm",
    // The greatest `MaxArraySize` that slurm.conf allows.
    max_shards: 4_000_000,
    needs_image: false,
    shares_folder: true,
    is_elsewhere: false,
    emit,
};

/// How often a task is requeued at most, so that a provider that is down for a day doesn't requeue it forever.
const MAX_REQUEUES: u32 = 20;

/// The greatest number of tasks in an array unless the cluster raises `MaxArraySize`.
const DEFAULT_MAX_TASKS: u32 = 1_000;

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, .. } = map;
    // Not `--shard auto`: with `sbatch --array=3,7 FILE` for some of the tasks, Slurm's variables describe only these.
    let command = command_line(map.words);
    let gather = map.gather_command(&shell_word(map.folder));
    let preparation = map.preparation("set them in your shell, too", "every node needs it");
    let last = shards.saturating_sub(1);
    let array_size = match *shards > DEFAULT_MAX_TASKS {
        true => {
            format!("#\n# So large an array needs MaxArraySize={} or more in slurm.conf.\n", shards.saturating_add(1))
        }
        false => String::new(),
    };
    format!(
        r#"#!/bin/bash
#SBATCH --job-name={job}
#SBATCH --array=0-{last}
#SBATCH --output={job}-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#
# Submit it in the folder in which you run `legwork map`; the folder must be on a file system that all nodes share:
#
#     sbatch FILE
#
# The nodes get the variables of your shell, unless your site changes the default of --export. They need {secrets} and the
# same LEGWORK_RECORD_KEY (for example from `openssl rand -hex 32`), so that one node can resume the runs of another.
{preparation}# When all tasks have ended, collect the results:
#
#     {gather}
{array_size}
set -u

child=
reason=
# Slurm sends USR1 two minutes before the time limit, and TERM when the job is cancelled or preempted. Either way, legwork
# closes its records. After a preemption or the failure of a node, Slurm itself requeues the task.
stop() {{
    interrupted=yes
    [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}}
trap 'reason=${{reason:-time_limit}}; stop' USR1
trap 'reason=cancelled; stop' TERM INT
{command} --shard "$((SLURM_ARRAY_TASK_ID + 1))/{shards}" &
child=$!
[ -z "$reason" ] || stop
code=
while :; do
    interrupted=
    status=0
    wait "$child" || status=$?
    # 127: the loop has the status already.
    [ "$status" -eq 127 ] && [ -n "$code" ] || code=$status
    # A signal interrupts `wait`.
    [ -n "$interrupted" ] || break
done

# Exit {RETRYABLE}: some row can go on. Above 128: a signal ended legwork. Then the task is requeued, and runs only what isn't
# finished. The other codes are final.
if {{ [ "$code" -eq {RETRYABLE} ] || [ "$code" -gt 128 ]; }} && [ "$reason" != cancelled ]; then
    restarts=${{SLURM_RESTART_COUNT:-0}}
    if [ "$restarts" -lt {MAX_REQUEUES} ]; then
        echo "exit $code: task $SLURM_ARRAY_TASK_ID is requeued, which makes $((restarts + 1)) of at most {MAX_REQUEUES} times" >&2
        # Slurm ends this script when it requeues the task.
        scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" && sleep 60
    else
        echo "exit $code: task $SLURM_ARRAY_TASK_ID was restarted $restarts times, so it isn't requeued" >&2
    fi
fi
exit "$code"
"#,
        secrets = map.secret_names(),
    )
}

//! The part of the rows that one of several processes runs.

use sha2::{Digest, Sha256};

/// One of several equal parts of the rows. A row belongs to a shard by its id alone, so the order of the file doesn't matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Counted from 0.
    index: u64,
    count: u64,
}

/// Why a shard can't be determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// The variables of an engine.
struct ShardVariables {
    index: &'static str,
    /// The value of the first shard.
    first: u64,
    /// The variables that may have the number of shards.
    count: &'static [&'static str],
}

/// Sets the number of shards where the engine doesn't.
const COUNT_VARIABLE: &str = "LEGWORK_SHARDS";

/// The engines whose variables say which part of the work a process has. Slurm is treated separately.
///
/// Sources: Kubernetes "Indexed Job for Parallel Processing"; AWS Batch user guide, "Job environment variables"; Cloud Run
/// "Create jobs"; GitLab "Predefined CI/CD variables"; Buildkite "Environment variables".
const VARIABLES: &[ShardVariables] = &[
    ShardVariables { index: "JOB_COMPLETION_INDEX", first: 0, count: &[] },
    ShardVariables { index: "AWS_BATCH_JOB_ARRAY_INDEX", first: 0, count: &["AWS_BATCH_JOB_ARRAY_SIZE"] },
    ShardVariables { index: "CLOUD_RUN_TASK_INDEX", first: 0, count: &["CLOUD_RUN_TASK_COUNT"] },
    ShardVariables { index: "CI_NODE_INDEX", first: 1, count: &["CI_NODE_TOTAL"] },
    ShardVariables { index: "BUILDKITE_PARALLEL_JOB", first: 0, count: &["BUILDKITE_PARALLEL_JOB_COUNT"] },
];

impl Shard {
    /// Parses `K/N`, or with `auto` reads the variables of the engine that started this process.
    ///
    /// # Errors
    /// If it isn't a shard, or no variable of an engine is set.
    pub fn parse(argument: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        if argument == "auto" {
            return Self::from_engine(variable);
        }
        // `parse` takes a `+`, too.
        let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
        let parts = argument.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?)));
        let shard = parts.and_then(|(k, n)| Self::new(k.checked_sub(1)?, n));
        shard.ok_or_else(|| ShardError {
            message: format!("--shard {argument}: this isn't a shard"),
            hint: "write K/N with K from 1 to N, such as 3/10, or `auto`".to_owned(),
        })
    }

    /// Whether a row belongs to it.
    pub fn contains(&self, row_id: &str) -> bool {
        let hash = Sha256::digest(row_id.as_bytes());
        let number = hash.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        number % self.count == self.index
    }

    fn new(index: u64, count: u64) -> Option<Self> {
        (index < count).then_some(Self { index, count })
    }

    fn from_engine(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ShardError> {
        let number = |name: &str| -> Result<Option<u64>, ShardError> {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
            value.trim().parse().map(Some).map_err(|_| ShardError {
                message: format!("--shard auto: the variable {name} is `{value}`, which isn't a number"),
                hint: "write --shard K/N instead of `auto`".to_owned(),
            })
        };
        let missing = |index: &str, names: &str, hint: String| ShardError {
            message: format!("--shard auto: {index} is set, but not {names}, so the number of shards is unknown"),
            hint,
        };
        let outside = |index: &str| ShardError {
            message: format!("--shard auto: the value of {index} doesn't fit the number of shards"),
            hint: "write --shard K/N instead of `auto`".to_owned(),
        };
        if let Some(id) = number("SLURM_ARRAY_TASK_ID")? {
            const BOUNDS: &str = "SLURM_ARRAY_TASK_MIN and SLURM_ARRAY_TASK_MAX";
            let bounds = number("SLURM_ARRAY_TASK_MIN")?.zip(number("SLURM_ARRAY_TASK_MAX")?);
            let (first, last) = bounds.ok_or_else(|| {
                missing("SLURM_ARRAY_TASK_ID", BOUNDS, "write --shard K/N instead of `auto`".to_owned())
            })?;
            let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
            let index = id.checked_sub(first).filter(|offset| offset % step == 0).map(|offset| offset / step);
            let count = last.checked_sub(first).and_then(|span| (span / step).checked_add(1));
            // `--array=3,7` has the bounds of `--array=3-7`, and no tasks for the shards between.
            let tasks = number("SLURM_ARRAY_TASK_COUNT")?;
            if let Some(tasks) = tasks.filter(|tasks| count.is_some_and(|count| count != *tasks)) {
                return Err(ShardError {
                    message: format!("--shard auto: the {tasks} tasks of the Slurm array aren't a range of numbers"),
                    hint: "submit it with --array=0-N, or write --shard K/N instead of `auto`".to_owned(),
                });
            }
            return index
                .zip(count)
                .and_then(|(index, count)| Self::new(index, count))
                .ok_or_else(|| outside("SLURM_ARRAY_TASK_ID"));
        }
        for engine in VARIABLES {
            let Some(value) = number(engine.index)? else { continue };
            let mut count = None;
            for name in engine.count.iter().copied().chain([COUNT_VARIABLE]) {
                count = number(name)?;
                if count.is_some() {
                    break;
                }
            }
            let names = [engine.count, &[COUNT_VARIABLE]].concat().join(" or ");
            let count = count.ok_or_else(|| {
                missing(engine.index, &names, format!("set {COUNT_VARIABLE} to the number of shards"))
            })?;
            let index = value.checked_sub(engine.first);
            return index.and_then(|index| Self::new(index, count)).ok_or_else(|| outside(engine.index));
        }
        let names: Vec<&str> = VARIABLES.iter().map(|engine| engine.index).collect();
        Err(ShardError {
            message: "--shard auto: no variable of an engine is set".to_owned(),
            hint: format!("start it by an engine that sets SLURM_ARRAY_TASK_ID, {}, or write K/N", names.join(", ")),
        })
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

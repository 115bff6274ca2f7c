//! Finds the agents of a map whose requests start alike in many rows.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Plan, PlannedAgent};

/// How many rows must share a prefix for each of those that run at once. The rows that start together write it once each,
/// for 0.75 times its input price more if the cache keeps it for an hour, which the first pause of more than five minutes
/// saves again: without that cache, as many rows then write it again for 1.15 times the price more than reading. With five
/// rows for each, a map without such a pause pays 0.15 times the price per row more at most.
const MIN_ROWS_PER_JOB: usize = 5;

/// The agents of a map, by what their requests start with: the tools and the system prompt.
#[derive(Debug, Default)]
pub struct SharedPrefixes {
    /// How many rows have it, by its digest.
    rows: HashMap<u64, usize>,
    min_rows: usize,
}

impl SharedPrefixes {
    /// No prefixes of a map with so many rows at once.
    pub fn new(jobs: usize) -> Self {
        Self { rows: HashMap::new(), min_rows: jobs.saturating_mul(MIN_ROWS_PER_JOB) }
    }

    /// The digests of a row's prefixes.
    pub fn of_row(plan: &Plan) -> BTreeSet<u64> {
        std::iter::once(&plan.parent).chain(plan.subagents.values()).map(digest).collect()
    }

    /// Counts the prefixes of a row.
    pub fn add_row(&mut self, prefixes: &BTreeSet<u64>) {
        for prefix in prefixes {
            *self.rows.entry(*prefix).or_default() += 1;
        }
    }

    /// Whether enough rows share an agent's prefix that the provider should keep it for an hour.
    pub fn are_kept_for_hour(&self, agent: &PlannedAgent) -> bool {
        self.rows.get(&digest(agent)).is_some_and(|rows| *rows >= self.min_rows)
    }
}

fn digest(agent: &PlannedAgent) -> u64 {
    // All rows read the same context files and skills.
    let PlannedAgent { model, system, context, skills, tools, .. } = agent;
    let mut hasher = DefaultHasher::new();
    (model.to_string(), system, context, skills, format!("{tools:?}")).hash(&mut hasher);
    hasher.finish()
}

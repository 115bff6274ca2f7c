//! Checks all that a record proposes again, with what the job file in this checkout allows.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::submission::Submission;
use crate::apply::check_patch;
use crate::event::Outcome;
use crate::lints::ValidJob;
use crate::outputs::{Checker, Entry, Kind, Output, OutputsFile, Subject, Target};
use crate::text::hex;

/// Why something for the trigger can't be published.
pub(super) const NO_NUMBER: &str = "this process's event has no issue and no pull request; name its event with --event FILE, or its \
                                    number with --number N";

/// Why a check can't be published for an issue.
pub(super) const NO_COMMIT: &str = "an issue has no commit that a check could be for";

/// What differs between the job of a record and the one in this checkout: the job file, or files that it names, which only records
/// of jobs with outputs know.
pub fn job_differences(file: &OutputsFile, job_text: &str, job: &ValidJob) -> Vec<String> {
    if file.job != job.name() {
        return vec![format!("the record is of the job `{}`, not of `{}`", file.job, job.name())];
    }
    let mut differences = Vec::new();
    if file.job_sha256 != hex(&Sha256::digest(job_text)) {
        differences.push("the job file differs from the one that ran".to_owned());
    }
    let here: BTreeMap<String, String> = match &job.job().outputs {
        Some(_) => job.file_digests(),
        None => BTreeMap::new(),
    };
    let names: std::collections::BTreeSet<&String> = here.keys().chain(file.files.keys()).collect();
    let differing = names.into_iter().filter(|name| here.get(*name) != file.files.get(*name));
    differences.extend(differing.map(|name| format!("`{name}` differs from the one that the run used")));
    differences
}

/// Why entries of a submission may not be published, by their ids. All are checked as at their call.
pub(super) fn refusals(submission: &Submission) -> HashMap<String, String> {
    let (mut refusals, mut counts, mut seen) = (HashMap::new(), HashMap::new(), HashSet::new());
    for entry in &submission.file.entries {
        let refusal = match submission.policy.allowed.get(&entry.name) {
            None => Some(format!("the job file has no output `{}`", entry.name)),
            Some(_) if !seen.insert(&entry.id) => Some("there are two outputs with this id".to_owned()),
            Some(output) => {
                let count: &mut u64 = counts.entry(&entry.name).or_default();
                *count += size(entry, output);
                match *count > u64::from(output.max) {
                    true => Some(format!("the job allows at most {} of `{}`", output.max, entry.name)),
                    false => check(submission, entry, output).err(),
                }
            }
        };
        if let Some(why) = refusal {
            refusals.insert(entry.id.clone(), why);
        }
    }
    refusals
}

fn check(submission: &Submission, entry: &Entry, output: &Output) -> Result<(), String> {
    match submission.outcome {
        Some(Outcome::Completed) => {}
        Some(Outcome::ChecksFailed) if output.on_checks_failed => {}
        Some(outcome) => return Err(format!("the run ended as {outcome}")),
        None => return Err("the run hasn't ended".to_owned()),
    }
    if entry.kind != output.kind.name() {
        return Err(format!("it is a {}, and the job file allows a {}", entry.kind.name(), output.kind.name().name()));
    }
    if entry.key.as_ref().is_some_and(|key| *key != entry.id) || !crate::outputs::is_key(&entry.id) {
        return Err("its id isn't its key".to_owned());
    }
    let number = submission.policy.trigger.as_ref().and_then(|trigger| trigger.number);
    if output.target == Some(Target::Trigger) && number.is_none() {
        return Err(NO_NUMBER.to_owned());
    }
    let is_issue = submission.policy.trigger.as_ref().is_some_and(|trigger| trigger.subject == Subject::Issue);
    if matches!(output.kind, Kind::Check { .. }) && is_issue {
        return Err(NO_COMMIT.to_owned());
    }
    Checker::new(output)?.check_entry(&submission.policy, output, entry)?;
    match (output.kind.patch_rules(), &submission.changed) {
        (None, _) => Ok(()),
        (Some(rules), Some(changed)) => check_patch(rules, changed),
        (Some(_), None) => Err("the changes of the run aren't known".to_owned()),
    }
}

/// How much of an output's limit an entry uses: of labels, each counts.
fn size(entry: &Entry, output: &Output) -> u64 {
    if !matches!(output.kind, Kind::Labels { .. }) {
        return 1;
    }
    let count = |key: &str| entry.data.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    (count("add") + count("remove")) as u64
}

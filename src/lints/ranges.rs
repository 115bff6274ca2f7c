//! Numbers are in range.

use crate::diagnostic::{Diagnostic, rule};
use crate::job::{
    Limit, MAX_CONTEXT_BYTES, MAX_ENTRIES, MAX_PARALLEL_SUBAGENTS, MAX_PATCH_FILES, MAX_REVIEW_COMMENTS, MAX_TOKENS,
    MAX_TURNS, PATCH_BYTES,
};
use crate::yaml::Spanned;

use super::{Lint, LintContext, models};

const NO_ZERO: &str = "0 doesn't mean unlimited: leave the limit out, or write `none`";
const NO_ZERO_BUT_NONE: &str = "0 doesn't mean unlimited: write `none` for that";

/// Checks turns, tokens, limits and what outputs may have.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "out-of-range")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    for agent in job.agents() {
        findings.extend(out_of_range("max_turns", agent.max_turns, MAX_TURNS));
    }
    let of_agents =
        std::iter::once(&job.parent.max_tokens).chain(job.subagents.values().map(|agent| &agent.max_tokens));
    let of_models = models::specs(job).filter_map(|spec| spec.value.options()).map(|options| &options.max_tokens);
    for tokens in of_agents.chain(of_models) {
        findings.extend(out_of_range("max_tokens", tokens.as_ref(), MAX_TOKENS));
    }
    findings.extend(out_of_range("context_bytes", job.context_bytes.as_ref(), MAX_CONTEXT_BYTES));
    for (_, output) in job.outputs() {
        for (key, given, most) in [
            ("max", &output.max, MAX_ENTRIES),
            ("max_comments", &output.max_comments, MAX_REVIEW_COMMENTS),
            ("max_files", &output.max_files, MAX_PATCH_FILES),
        ] {
            findings.extend(out_of_range(key, given.as_ref(), most));
        }
        if let Some(size) = output.max_bytes.as_ref().filter(|size| size.value.bytes() > PATCH_BYTES) {
            let finding = Diagnostic::error("out-of-range", size.place(), "`max_bytes` can be `1MiB` at most");
            findings.push(finding.help("legwork keeps no longer patch: write a smaller size, or leave the key out"));
        }
    }
    let limits = &job.limits;
    findings.extend(out_of_range("parallel_subagents", limits.parallel_subagents.as_ref(), MAX_PARALLEL_SUBAGENTS));
    if let Some(cost) = limits.cost_usd.as_ref().filter(|cost| !(cost.value.is_finite() && cost.value > 0.0)) {
        findings.push(
            Diagnostic::error("out-of-range", cost.place(), "`cost_usd` must be a number greater than 0").help(NO_ZERO),
        );
    }
    if let Some(tokens) = limits.tokens.as_ref().filter(|tokens| tokens.value == 0) {
        findings.push(zero_finding("tokens", tokens, NO_ZERO));
    }
    for (key, limit) in [("tool_calls", &limits.tool_calls), ("subagents", &limits.subagents)] {
        if let Some(limit) = limit.as_ref().filter(|limit| limit.value == Limit::Max(0)) {
            findings.push(zero_finding(key, limit, NO_ZERO_BUT_NONE));
        }
    }
}

/// The message for a number that is out of range.
pub(super) fn range_message(key: &str, most: u32) -> String {
    format!("`{key}` must be from 1 to {most}")
}

/// The help for a number that is out of range.
pub(super) fn range_help(most: u32) -> String {
    format!("write a number from 1 to {most}, or leave the key out for the default")
}

fn out_of_range(key: &str, given: Option<&Spanned<u32>>, most: u32) -> Option<Diagnostic> {
    let given = given.filter(|given| !(1..=most).contains(&given.value))?;
    Some(Diagnostic::error("out-of-range", given.place(), range_message(key, most)).help(range_help(most)))
}

fn zero_finding<T>(key: &str, given: &Spanned<T>, help: &str) -> Diagnostic {
    Diagnostic::error("out-of-range", given.place(), format!("`{key}` must be at least 1")).help(help)
}

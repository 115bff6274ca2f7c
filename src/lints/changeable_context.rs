//! Text that a pull request can change doesn't become instructions of a job that takes untrusted input.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};

use super::{Lint, LintContext};

/// Checks for context files and skills of the workspace in jobs with untrusted inputs.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "changeable-context")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let Some((untrusted, _)) = job.inputs().find(|(_, input)| input.is_untrusted()) else { return };
    let mut warn = |place: SourceSpan, path: &str, key: &str| {
        let message = format!("a pull request can change `{path}`, which becomes instructions for this job");
        findings.push(
            Diagnostic::warning("changeable-context", place, message)
                .label(untrusted.place(), "text from untrusted authors: they may open pull requests, too")
                .help(format!("take it from a commit that they can't change: `{{ {key}: {path}, ref: origin/main }}`")),
        );
    };
    let of_agents = job.agents().flat_map(|agent| agent.own_context);
    for entry in job.context.iter().chain(of_agents).filter(|entry| entry.value.reference().is_none()) {
        warn(entry.place(), entry.value.path(), "file");
    }
    let of_agents = job.agents().flat_map(|agent| agent.own_skills);
    for entry in job.skills.iter().chain(of_agents).filter(|entry| entry.value.reference().is_none()) {
        warn(entry.place(), entry.value.path(), "folder");
    }
}

//! What an untrusted job can't have.

use crate::diagnostic::{Diagnostic, rule};
use crate::job::GitAccess;

use super::{Lint, LintContext, models};

/// Checks for permissions that only trusted jobs get.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Error "forbidden-if-untrusted")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    if !subject.is_untrusted {
        return;
    }
    let job = subject.job;
    let mut refuse = |place, message: String| {
        let finding = Diagnostic::error("forbidden-if-untrusted", place, message);
        findings.push(finding.help("remove it; or review the whole job, and run it without `--untrusted`"));
    };
    for name in &job.env {
        refuse(name.place(), format!("an untrusted job can't see the variable `{}`", name.value));
    }
    for (name, _) in job.inputs().filter(|(_, input)| input.is_secret()) {
        refuse(name.place(), format!("an untrusted job can't have the secret `{}`", name.value));
    }
    if let Some(network) = subject.root.get("network").filter(|_| job.network.is_some()) {
        refuse(network.place(), "an untrusted job can't use the network".to_owned());
    }
    if let Some(git) = subject.root.get("git").filter(|_| job.git == GitAccess::Commit) {
        refuse(git.place(), "an untrusted job can't change git folders".to_owned());
    }
    for (name, _) in &job.mcp {
        refuse(name.place(), format!("an untrusted job can't have the tool server `{}`", name.value));
    }
    for path in &job.allow_changes {
        refuse(path.place(), format!("an untrusted job can't allow changes to `{}`", path.value));
    }
    let context = job.context.iter().chain(job.agents().flat_map(|agent| agent.own_context));
    let skills = job.skills.iter().chain(job.agents().flat_map(|agent| agent.own_skills));
    let references = context.filter_map(|entry| entry.value.reference());
    for reference in references.chain(skills.filter_map(|entry| entry.value.reference())) {
        refuse(reference.place(), format!("an untrusted job can't read files of `{}`", reference.value));
    }
    for step in &job.before {
        let step = &step.name;
        refuse(step.place(), format!("an untrusted job can't have the step `{}` before the agent", step.value));
    }
    if let Some(state) = subject.root.get("state").filter(|_| job.state.is_some()) {
        refuse(state.place(), "an untrusted job can't keep a state".to_owned());
    }
    for check in &job.checks {
        let check = &check.name;
        refuse(check.place(), format!("an untrusted job can't have the check `{}`", check.value));
    }
    for spec in models::specs(job) {
        if models::resolve(spec, &subject.user_config.servers).is_ok_and(|model| model.is_scripted()) {
            refuse(spec.place(), "an untrusted job can't replay a file".to_owned());
        }
    }
}

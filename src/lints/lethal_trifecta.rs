//! Private data, untrusted text and a way out: any two are fine, all three let an attacker steal the data.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::{Network, ToolEntry};
use crate::tools::bash::is_unrestricted;
use crate::yaml::Spanned;

use super::{Lint, LintContext};

/// Checks for jobs that combine all three.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "lethal-trifecta")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    if job.network != Network::Open {
        return;
    }
    let Some(network) = subject.root.get("network") else { return };
    let Some((untrusted, _)) = job.inputs().find(|(_, input)| input.is_untrusted()) else { return };
    let mut tools = job.agents().flat_map(|agent| agent.tools);
    let Some((place, what)) = tools.find_map(unrestricted_bash) else { return };
    let message =
        format!("the author of the input `{}` can trick an agent into sending out what it can read", untrusted.value);
    findings.push(
        Diagnostic::warning("lethal-trifecta", network.place(), message)
            .label(untrusted.place(), "text from untrusted authors")
            .label(place, what)
            .help(
                "remove one of the three: leave out `network`, or list the commands that `bash` may run under `allow`",
            ),
    );
}

/// The place where an entry of an allowlist permits any command, and a label for it.
fn unrestricted_bash(tool: &Spanned<ToolEntry>) -> Option<(SourceSpan, &'static str)> {
    let whole = || Some((super::tools::name_place(tool), "can read everything that commands can see"));
    match &tool.value {
        ToolEntry::Name(name) if name == "bash" => whole(),
        ToolEntry::Options { name, options } if name.value == "bash" && !options.is_incomplete() => {
            match options.get("allow") {
                None => whole(),
                Some(rules) => {
                    let rule = rules.items().find(|rule| rule.as_str().is_some_and(is_unrestricted))?;
                    Some((rule.place(), "permits any command: it runs or sends what it is given"))
                }
            }
        }
        _ => None,
    }
}

//! Private data, untrusted text and a way out: any two are fine, all three let a stranger carry the data off.

use crate::diagnostic::{Diagnostic, Rule, SourceSpan, rule};
use crate::job::{Network, ToolEntry};
use crate::tools::bash::is_unrestricted;
use crate::yaml::Spanned;

use super::{Lint, LintContext};

/// Jobs in which the three come together.
pub(super) struct LethalTrifecta;

const RULES: &[Rule] = &[rule!(Warning "lethal-trifecta")];

impl Lint for LethalTrifecta {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        if job.network != Network::Open {
            return;
        }
        let Some(network) = subject.root.get("network") else { return };
        let Some((untrusted, _)) = job.inputs().find(|(_, input)| input.is_untrusted()) else { return };
        let mut tools = job.agents().flat_map(|agent| agent.tools);
        let Some((place, what)) = tools.find_map(unrestricted_bash) else { return };
        let message = format!(
            "whoever writes the input `{}` can talk an agent into sending out what it can read",
            untrusted.value
        );
        findings.push(
            Diagnostic::warning("lethal-trifecta", network.place(), message)
                .label(untrusted.place(), "text that strangers can write")
                .label(place, what)
                .help("take one of the three away: leave `network` out, or list under `allow` the few commands that `bash` may run"),
        );
    }
}

/// Where an entry of an allowlist lets commands do anything, and how to say so.
fn unrestricted_bash(tool: &Spanned<ToolEntry>) -> Option<(SourceSpan, &'static str)> {
    let whole = || Some((super::tools::name_place(tool), "reads all that commands can see"));
    match &tool.value {
        ToolEntry::Name(name) if name == "bash" => whole(),
        ToolEntry::Options { name, options } if name.value == "bash" && !options.is_incomplete() => {
            match options.get("allow") {
                None => whole(),
                Some(rules) => {
                    let rule = rules.items().find(|rule| rule.as_str().is_some_and(is_unrestricted))?;
                    Some((rule.place(), "allows as much as no rules: it runs, or sends, what it is given"))
                }
            }
        }
        _ => None,
    }
}

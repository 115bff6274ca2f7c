//! Private data, untrusted text and a way out: any two are fine, all three let a stranger carry the data off.

use crate::diagnostic::{Diagnostic, Place, Rule, rule};
use crate::job::{Network, ToolEntry};
use crate::tools::bash::is_free;
use crate::yaml::Spanned;

use super::{Lint, Subject};

/// Jobs in which the three come together.
pub(super) struct Lethal;

const RULES: &[Rule] = &[rule!(Warning "lethal-three")];

impl Lint for Lethal {
    fn rules(&self) -> &'static [Rule] {
        RULES
    }

    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
        let job = subject.job;
        if job.network != Network::Open {
            return;
        }
        let Some(network) = subject.root.get("network") else { return };
        let Some((untrusted, _)) = job.inputs().find(|(_, input)| input.is_untrusted()) else { return };
        let mut tools = job.agents().flat_map(|agent| agent.tools);
        let Some((place, what)) = tools.find_map(free) else { return };
        let message = format!(
            "whoever writes the input `{}` can talk an agent into sending out what it can read",
            untrusted.value
        );
        findings.push(
            Diagnostic::warning("lethal-three", network.place(), message)
                .label(untrusted.place(), "text that strangers can write")
                .label(place, what)
                .help("take one of the three away: leave `network` out, or list under `allow` the few commands that `bash` may run"),
        );
    }
}

/// Where an entry of an allowlist lets commands do anything, and how to say so.
fn free(tool: &Spanned<ToolEntry>) -> Option<(Place, &'static str)> {
    let whole = || Some((super::tools::name_place(tool), "reads all that commands can see"));
    match &tool.value {
        ToolEntry::Name(name) if name == "bash" => whole(),
        ToolEntry::Options { name, options } if name.value == "bash" && !options.is_torn() => {
            match options.get("allow") {
                None => whole(),
                Some(rules) => {
                    let rule = rules.items().find(|rule| rule.as_str().is_some_and(is_free))?;
                    Some((rule.place(), "allows as much as no rules: it runs, or sends, what it is given"))
                }
            }
        }
        _ => None,
    }
}

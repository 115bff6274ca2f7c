//! Private data, untrusted text and a way out: any two are fine, all three let a stranger carry the data off.

use crate::diagnostic::{Diagnostic, Rule, rule};
use crate::job::{Network, ToolEntry};

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
        let Some(bash) = tools.find(|tool| match &tool.value {
            ToolEntry::Name(name) => name == "bash",
            ToolEntry::Options { name, options } => {
                name.value == "bash" && options.get("allow").is_none() && !options.is_torn()
            }
        }) else {
            return;
        };
        let message = format!(
            "whoever writes the input `{}` can talk an agent into sending out what it can read",
            untrusted.value
        );
        findings.push(
            Diagnostic::warning("lethal-three", network.place(), message)
                .label(untrusted.place(), "text that strangers can write")
                .label(super::tools::name_place(bash), "reads all that commands can see")
                .help("take one of the three away: leave `network` out, or list under `allow` the few commands that `bash` may run"),
        );
    }
}

//! Private data, untrusted text and a way out: any two are fine, all three let an attacker steal the data.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::{BeforeStep, Job, Network, ToolEntry};
use crate::tools::bash::is_unrestricted;
use crate::tools::{builtin, starts_commands};
use crate::yaml::Spanned;

use super::{Lint, LintContext};

/// Checks for jobs that combine all three.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "lethal-trifecta")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let input = job.inputs().find(|(_, input)| input.is_untrusted()).map(|(name, _)| (name, "input"));
    let is_used = |step: &&BeforeStep| !step.is_trusted() && subject.prompts.templates.uses_step(&step.name.value);
    let step = || job.before.iter().find(is_used).map(|step| (&step.name, "step"));
    let named = input.or_else(step).map(|(name, kind)| (name.value.clone(), name.place(), kind));
    // Strangers can have written what an earlier run has kept.
    let state = || {
        let declared = subject.root.get("state").filter(|_| subject.prompts.templates.uses_state())?;
        Some(("state".to_owned(), declared.place(), "state"))
    };
    let Some((untrusted, untrusted_place, kind)) = named.or_else(state) else { return };
    let tools = || job.agents().flat_map(|agent| agent.tools);
    let network = subject.root.get("network").filter(|_| job.network == Network::Open);
    let by_command = network.zip(tools().find_map(unrestricted_bash)).map(|(network, (place, what))| {
        let help =
            "remove one of the three: leave out `network`, or list the commands that `bash` may run under `allow`";
        (network.place(), (place, what), help)
    });
    let by_server = || {
        let server = tools().find_map(|tool| networked_server(tool, job))?;
        let reader = tools().find(|tool| builtin(tool.value.name()).is_some_and(|tool| tool.reads_content))?;
        let help = "remove one of the three: a server without `network: open`, agents that read no files, or another job \
                    that processes the text first";
        Some((server, (super::tools::name_place(reader), "can read the files of the workspace"), help))
    };
    let Some((way_out, (place, what), help)) = by_command.or_else(by_server) else { return };
    let author = match kind {
        "step" => "of what the step prints",
        "state" => "of texts that earlier runs have kept in",
        _ => "of the input",
    };
    let message = format!("the author {author} `{untrusted}` can trick an agent into sending out what it can read");
    findings.push(
        Diagnostic::warning("lethal-trifecta", way_out, message)
            .label(untrusted_place, "text from untrusted authors")
            .label(place, what)
            .help(help),
    );
}

/// The place where an agent gets tools of a server that reaches a network.
fn networked_server(tool: &Spanned<ToolEntry>, job: &Job) -> Option<SourceSpan> {
    let ToolEntry::Server(entry) = &tool.value else { return None };
    let server = job.mcp.iter().find(|(name, _)| name.value == entry.server.value).map(|(_, server)| server)?;
    let is_open = server.network.as_ref().is_some_and(|network| network.value == Network::Open);
    (is_open || server.url.is_some()).then(|| entry.server.place())
}

/// The place where an entry of an allowlist permits any command, and a label for it.
fn unrestricted_bash(tool: &Spanned<ToolEntry>) -> Option<(SourceSpan, &'static str)> {
    let whole = || Some((super::tools::name_place(tool), "can read everything that commands can see"));
    match &tool.value {
        ToolEntry::Name(name) if starts_commands(name) => whole(),
        ToolEntry::Options { name, options } if starts_commands(&name.value) && !options.is_incomplete() => {
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

//! Private data, untrusted text and a way out: any two are fine, all three let an attacker steal the data.

use crate::diagnostic::{Diagnostic, SourceSpan, rule};
use crate::job::{BeforeStep, Job, ServerEntry, ToolEntry};
use crate::tools::bash::is_unrestricted;
use crate::tools::{builtin, starts_commands};
use crate::yaml::Spanned;

use super::{Lint, LintContext};

/// Checks for jobs that combine all three.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "lethal-trifecta")], check };

/// The verbs that the names of tools that only read begin or end with. A tool that fetches any address isn't one of them.
const READING_VERBS: &[&str] = &[
    "count", "describe", "diff", "find", "get", "list", "log", "lookup", "query", "read", "resolve", "search", "show",
    "status", "view",
];

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
    let tools = || job.agents().flat_map(|agent| agent.tools);
    let entries = || tools().filter_map(|tool| networked_server(tool, job));
    // Strangers write what an issue tracker or a web page says.
    let fetched = || entries().next().map(|entry| (entry.server.value.clone(), entry.server.place(), "server"));
    let Some((untrusted, untrusted_place, kind)) = named.or_else(state).or_else(fetched) else { return };
    let network = subject.root.get("network").filter(|_| job.network.is_some());
    let by_command = network.zip(tools().find_map(unrestricted_bash)).map(|(network, (place, what))| {
        let help =
            "remove one of the three: leave out `network`, or list the commands that `bash` may run under `allow`";
        (network.place(), (place, what), help)
    });
    let by_server = || {
        // A server that is only read tells what strangers have written, and gets the words of a search.
        let is_only_read =
            |entry: &ServerEntry| entries().filter(|other| other.server.value == entry.server.value).all(only_reads);
        let is_read = |entry: &&ServerEntry| {
            kind != "server" || !is_only_read(entry) || entries().any(|other| other.server.value != entry.server.value)
        };
        let server = entries().find(is_read)?.server.place();
        let reader = tools().find(|tool| builtin(tool.value.name()).is_some_and(|tool| tool.reads_content))?;
        let help = "remove one of the three: a server without `network: open`, agents that read no files, or another job \
                    that processes the text first";
        Some((server, (super::tools::name_place(reader), "can read the files of the workspace"), help))
    };
    let Some((way_out, (place, what), help)) = by_command.or_else(by_server) else { return };
    let author = match kind {
        "step" => "of what the step prints",
        "state" => "of texts that earlier runs have kept in",
        "server" => "of what the tool server returns,",
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

/// The entry of an agent for a server that reaches a network.
fn networked_server<'a>(tool: &'a Spanned<ToolEntry>, job: &Job) -> Option<&'a ServerEntry> {
    let entry = tool.value.server()?;
    let server = job.mcp.iter().find(|(name, _)| name.value == entry.server.value).map(|(_, server)| server)?;
    let is_open = server.network.as_ref().is_some_and(|network| network.value.is_some());
    (is_open || server.url.is_some()).then_some(entry)
}

/// Whether the names of all tools of an entry say that they only read.
fn only_reads(entry: &ServerEntry) -> bool {
    entry.allow.value.iter().all(|tool| {
        let words = tool.value.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        let is_reading = |word: &&str| {
            let verb = word
                .find(|letter: char| letter.is_ascii_uppercase())
                .filter(|at| *at > 0)
                .map_or(*word, |at| &word[..at]);
            READING_VERBS.contains(&verb.to_ascii_lowercase().as_str())
        };
        words.first().is_some_and(is_reading) || words.last().is_some_and(is_reading)
    })
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

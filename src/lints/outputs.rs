//! Outputs: their kinds and keys, the lists that name inputs, and the agents that use them.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Severity, SourceSpan, rule, suggest_name};
use crate::job::{
    InputType, Job, JobOutput, MAX_OUTPUTS, NOTHING_TO_DO, OUTPUT_NAME_FORM, OutputRules, OutputTarget, TextList,
    is_output_name,
};
use crate::json_schema::{named_input, named_step};
use crate::outputs::{KINDS, KindName, TextRules, check_label, check_login, check_title_prefix, is_forge_token};
use crate::text::sanitize::line as sanitize_line;
use crate::text::truncate::ellipsize;
use crate::tools::TOOLS;
use crate::tools::set_state::SetState;
use crate::tools::skill::SkillTool;
use crate::tools::submit_result::SubmitResult;
use crate::yaml::Spanned;

use super::{Lint, LintContext, join_names, listed_twice};

/// Checks what a job may propose outside.
pub(super) const LINT: Lint =
    Lint { rules: &[rule!(Error "bad-output"), rule!(Error "unknown-output"), rule!(Warning "unused-output")], check };

/// The most characters of a text in a message.
const MAX_SHOWN_CHARS: usize = 60;

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    if let Some(outputs) = &job.outputs {
        for (name, output) in &outputs.value.entries {
            check_name(name, findings);
            check_output(job, name, output, findings);
            let JobOutput { title_prefix, labels, choose, add, remove, closes, .. } = &output.value;
            if let Some(prefix) = title_prefix {
                let closes = closes.as_ref().is_some_and(|closes| closes.value);
                check_prefix(&outputs.value.rules, closes, prefix, findings);
            }
            let labels = [labels, choose, add, remove].into_iter().flat_map(|list| items(list.as_ref()));
            for label in labels.chain(&output.value.name) {
                check_text(label, check_label(&label.value), findings);
            }
        }
        if let Some((name, _)) = job.outputs().nth(MAX_OUTPUTS) {
            findings.push(bad(name.place(), format!("a job can have at most {MAX_OUTPUTS} outputs")));
        }
        let rules = &outputs.value.rules;
        for login in items(rules.mentions.as_ref()) {
            check_text(login, check_login(&login.value), findings);
        }
        for list in [&rules.mentions, &rules.links].into_iter().flatten() {
            check_list(job, list, findings);
        }
        check_hosts(rules.links.as_ref(), findings);
    }
    check_lists(subject, findings);
}

/// The entries of a list that isn't a template; entries that are empty have a finding already.
fn items(list: Option<&Spanned<TextList>>) -> impl Iterator<Item = &Spanned<String>> {
    let items = list.map(|list| match &list.value {
        TextList::Items(items) => items.as_slice(),
        TextList::Template(_) => &[],
    });
    items.unwrap_or_default().iter().filter(|item| !item.value.trim().is_empty())
}

/// Reports what is wrong with a text that the job itself puts on a forge. Texts with tags have findings of their own.
fn check_text(text: &Spanned<String>, checked: Result<(), String>, findings: &mut Vec<Diagnostic>) {
    let is_template = ["{{", "{%", "{#"].iter().any(|tag| text.value.contains(tag));
    let Some(why) = checked.err().filter(|_| !is_template && !text.node.is_placeholder()) else { return };
    let (message, help) = why.rsplit_once(": ").unwrap_or((&why, ""));
    let shown = ellipsize(&text.value, MAX_SHOWN_CHARS);
    let finding = bad(text.place(), format!("`{}` can't be published: {message}", sanitize_line(&shown)));
    findings.push(if help.is_empty() { finding } else { finding.help(help) });
}

/// What a prefix may have beside plain text. Of lists that are inputs nothing is known, so what they may allow isn't refused.
fn check_prefix(rules: &OutputRules, closes: bool, prefix: &Spanned<String>, findings: &mut Vec<Diagnostic>) {
    let texts = |list: Option<&Spanned<TextList>>| items(list).map(|item| item.value.clone()).collect::<Vec<String>>();
    let is_input = |list: Option<&Spanned<TextList>>| list.is_some_and(|list| list.value.template().is_some());
    let mentions: Vec<String> =
        texts(rules.mentions.as_ref()).iter().map(|login| login.trim_start_matches('@').to_owned()).collect();
    let links: Vec<String> = texts(rules.links.as_ref()).iter().map(|host| host.to_ascii_lowercase()).collect();
    let checked =
        check_title_prefix(&prefix.value, &TextRules { mentions: &mentions, links: &links, ..TextRules::default() });
    let depends = checked.as_ref().err().is_some_and(|why| {
        is_input(rules.mentions.as_ref()) && why.starts_with("mention:")
            || is_input(rules.links.as_ref()) && why.starts_with("link-host:")
            // The number of the trigger isn't known.
            || closes && why.starts_with("closing-keyword:")
    });
    if !depends {
        check_text(prefix, checked, findings);
    }
}

fn bad(place: SourceSpan, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error("bad-output", place, message)
}

/// The inputs that outputs name.
pub fn used_inputs(job: &Job) -> Vec<String> {
    templates(job).into_iter().filter_map(|(text, _)| named_input(text).map(str::to_owned)).collect()
}

/// The places of the lists and targets that are templates.
pub(super) fn template_places(job: &Job) -> Vec<SourceSpan> {
    templates(job).into_iter().map(|(_, place)| place).collect()
}

/// The lists and targets of outputs that are templates.
fn templates(job: &Job) -> Vec<(&str, SourceSpan)> {
    let mut found = Vec::new();
    let rules = job.outputs.iter().map(|outputs| &outputs.value.rules);
    let mut lists: Vec<&Spanned<TextList>> =
        rules.flat_map(|rules| [&rules.mentions, &rules.links]).flatten().collect();
    for (_, output) in job.outputs() {
        let JobOutput { labels, choose, paths, add, remove, .. } = output;
        lists.extend([labels, choose, paths, add, remove].into_iter().flatten());
        if let Some(target) = &output.target
            && let OutputTarget::Text(text) = &target.value
        {
            found.push((text.as_str(), target.place()));
        }
    }
    found.extend(lists.into_iter().filter_map(|list| Some((list.value.template()?, list.place()))));
    found
}

fn check_name(name: &Spanned<String>, findings: &mut Vec<Diagnostic>) {
    let others = [SubmitResult::NAME, SkillTool::NAME, SetState::NAME, NOTHING_TO_DO];
    let is_tool = TOOLS.iter().map(|tool| tool.name).chain(others).any(|tool| tool == name.value);
    if !is_output_name(&name.value) {
        findings.push(bad(name.place(), format!("`{}` isn't a name of an output", name.value)).help(OUTPUT_NAME_FORM));
    } else if is_tool {
        let finding = bad(name.place(), format!("`{}` is the name of a tool", name.value));
        findings.push(finding.help("give the output another name; `kind` says what it is"));
    }
}

fn check_output(job: &Job, name: &Spanned<String>, output: &Spanned<JobOutput>, findings: &mut Vec<Diagnostic>) {
    let Spanned { value: output, node } = output;
    let Some(kind) = output.kind(&name.value) else {
        let names = KINDS.iter().map(|kind| kind.name());
        let near = suggest_name(&name.value, names.clone()).map(|near| format!(" Did you mean `{near}`?"));
        let finding = bad(name.place(), format!("`{}` isn't a kind of output, and has no `kind`", name.value));
        let help = format!("write `kind: KIND`, one of {}.{}", join_names(names), near.unwrap_or_default());
        findings.push(finding.help(help));
        return;
    };
    // Of other keys, the reader has said that no output has them.
    let is_of_another = |key: &str| KINDS.iter().any(|kind| kind.keys().contains(&key));
    for (key, _) in node.entries() {
        let text = key.text().unwrap_or_default();
        if kind.keys().contains(&text) || !is_of_another(text) {
            continue;
        }
        let message = format!("an output of the kind `{}` has no key `{text}`", kind.name());
        let known = join_names(["kind", "max", "on"].into_iter().chain(kind.keys().iter().copied()));
        findings.push(bad(key.place(), message).help(format!("remove it; its keys are {known}")));
    }
    let JobOutput { labels, choose, paths, add, remove, .. } = output;
    for list in [labels, choose, paths, add, remove].into_iter().flatten() {
        check_list(job, list, findings);
    }
    if let Some(target) = &output.target {
        check_target(job, target, findings);
    }
    check_kind(kind, name, output, findings);
}

/// What only one kind needs.
fn check_kind(kind: KindName, name: &Spanned<String>, output: &JobOutput, findings: &mut Vec<Diagnostic>) {
    let mut missing = |key: &str, help: &str| {
        findings.push(bad(name.place(), format!("the {} `{}` has no `{key}`", kind.name(), name.value)).help(help));
    };
    match kind {
        KindName::Command => {
            if output.run.is_none() {
                missing("run", "name the command: `run: ./notify.sh`");
            }
            if output.schema.is_none() {
                missing("schema", "describe the data with a JSON Schema: `schema: { file: schemas/notify.json }`");
            }
        }
        KindName::Labels if output.add.is_none() && output.remove.is_none() => {
            missing("add", "list the labels: `add: [bug, question]`, `remove: [needs-triage]`");
        }
        _ => {}
    }
    for variable in output.env.iter().filter(|variable| is_forge_token(&variable.value)) {
        let finding = bad(variable.place(), format!("a command never gets the forge's token, `{}`", variable.value));
        findings.push(finding.help("remove it; for the forge there are the other kinds"));
    }
    if let Some(TextList::Items(globs)) = output.paths.as_ref().map(|paths| &paths.value) {
        for glob in globs.iter().filter(|glob| globset::Glob::new(&glob.value).is_err() || glob.value.is_empty()) {
            findings.push(bad(glob.place(), format!("`{}` isn't a glob", glob.value)).help("write it like `docs/**`"));
        }
    }
}

/// A list that is a template must be one list input that trusted people give.
fn check_list(job: &Job, list: &Spanned<TextList>, findings: &mut Vec<Diagnostic>) {
    match &list.value {
        TextList::Items(items) => {
            for item in items.iter().filter(|item| item.value.trim().is_empty()) {
                findings.push(bad(item.place(), "this entry is empty").help("remove it"));
            }
        }
        TextList::Template(text) => match named_step(text) {
            Some(step) => check_step(job, step, list.place(), findings),
            None => check_input(job, text, InputType::List, list.place(), findings),
        },
    }
}

/// A list that a step before the agent prints.
fn check_step(job: &Job, name: &str, place: SourceSpan, findings: &mut Vec<Diagnostic>) {
    let Some(step) = job.before.iter().find(|step| step.name.value == name) else {
        let near = suggest_name(name, job.before.iter().map(|step| step.name.value.as_str()));
        let help = near.map_or("add it to `before`".to_owned(), |near| format!("did you mean `{near}`?"));
        findings.push(bad(place, format!("the job has no step `{name}` before the agent")).help(help));
        return;
    };
    if !step.is_trusted() {
        let message = format!(
            "the step `{name}` can't decide what is published, because untrusted people can influence what it prints"
        );
        findings.push(bad(place, message).help("if only trusted people can, write `trusted: true` at the step"));
    } else if step.schema.is_none() {
        let finding = bad(place, format!("the step `{name}` prints a text, and this is a list"));
        findings.push(finding.help("give it a schema: `schema: { type: array, items: { type: string } }`"));
    } else if step.is_optional() {
        let finding =
            bad(place, format!("the step `{name}` is optional, and without its value nothing can be proposed"));
        findings.push(finding.help("remove `optional: true`"));
    }
}

fn check_target(job: &Job, target: &Spanned<OutputTarget>, findings: &mut Vec<Diagnostic>) {
    let OutputTarget::Text(text) = &target.value else { return };
    if matches!(text.as_str(), "trigger" | "any") {
        return;
    }
    if !text.contains("{{") {
        let finding = bad(target.place(), format!("`{text}` isn't a target"));
        findings.push(finding.help("write `trigger`, `any`, a number, or `\"{{ inputs.NAME }}\"`"));
        return;
    }
    check_input(job, text, InputType::Integer, target.place(), findings);
}

fn check_input(job: &Job, text: &str, kind: InputType, place: SourceSpan, findings: &mut Vec<Diagnostic>) {
    let noun = if kind == InputType::List { "list" } else { "integer" };
    let Some(name) = named_input(text) else {
        let or_step = if kind == InputType::List { ", or one trusted step: `\"{{ before.NAME }}\"`" } else { "" };
        let finding = bad(place, format!("expected one input of type `{noun}`: `\"{{{{ inputs.NAME }}}}\"`{or_step}"));
        findings.push(
            finding
                .help("an output's list is fixed before the agent starts: it takes one whole value, without filters"),
        );
        return;
    };
    let declared = job.inputs().find(|(declared, _)| declared.value == name);
    let Some((_, input)) = declared else {
        let near = suggest_name(name, job.inputs().map(|(name, _)| name.value.as_str()));
        let help = near.map_or("declare it under `inputs`".to_owned(), |near| format!("did you mean `{near}`?"));
        findings.push(bad(place, format!("the job has no input `{name}`")).help(help));
        return;
    };
    if input.kind.value != kind {
        let finding = bad(place, format!("the input `{name}` isn't of type `{noun}`"));
        findings.push(finding.help(format!("declare it with `type: {noun}`")));
    } else if input.is_untrusted() || input.is_secret() {
        let finding = bad(
            place,
            format!(
                "the input `{name}` can't decide what is published, because untrusted people write it, or it is secret"
            ),
        );
        findings.push(finding.help("use another input, or a fixed list"));
    }
}

/// Hosts are names, without a scheme and a path.
fn check_hosts(links: Option<&Spanned<TextList>>, findings: &mut Vec<Diagnostic>) {
    let Some(TextList::Items(hosts)) = links.map(|links| &links.value) else { return };
    let is_host = |host: &str| {
        let host = host.strip_prefix("*.").unwrap_or(host);
        host.contains('.') && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte))
    };
    for host in hosts.iter().filter(|host| !is_host(&host.value)) {
        let finding = bad(host.place(), format!("`{}` isn't a host", host.value));
        findings.push(finding.help("write the name alone, such as `docs.example.org` or `*.example.org`"));
    }
}

/// The agents' lists name outputs that exist, and every output is in one.
fn check_lists(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let mut used: HashSet<&str> = HashSet::new();
    for agent in job.agents() {
        let mut listed: Vec<&Spanned<String>> = Vec::new();
        for name in agent.tools.iter().flat_map(|entry| entry.value.outputs()) {
            used.insert(&name.value);
            if let Some(first) = listed.iter().find(|other| other.value == name.value) {
                findings.push(listed_twice(
                    Severity::Error,
                    "duplicate-tool",
                    &name.value,
                    name.place(),
                    first.place(),
                ));
            }
            listed.push(name);
            let is_known = name.value == NOTHING_TO_DO && job.outputs.is_some()
                || job.outputs().any(|(known, _)| known.value == name.value);
            if !is_known {
                let known = || job.outputs().map(|(known, _)| known.value.as_str()).chain([NOTHING_TO_DO]);
                let near = suggest_name(&name.value, known());
                let help = match near {
                    _ if job.outputs.is_none() => "declare it under `outputs`".to_owned(),
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the outputs are {}", join_names(known())),
                };
                let message = format!("the job has no output `{}`", name.value);
                findings.push(Diagnostic::error("unknown-output", name.place(), message).help(help));
            }
        }
    }
    if !subject.is_complete {
        return;
    }
    for (name, _) in job.outputs().filter(|(name, _)| !used.contains(name.value.as_str())) {
        let message = format!("no agent can use the output `{}`", name.value);
        let help = format!("add `- {{ output: [{}] }}` to the `tools` of an agent", name.value);
        findings.push(Diagnostic::warning("unused-output", name.place(), message).help(help));
    }
}

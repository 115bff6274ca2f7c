//! The HTML report of a run: one self-contained page that loads nothing and is complete without its script.
//!
//! The page has a Content-Security-Policy that allows only its own style and script. Every text of a model, a tool, a file or
//! a server is escaped, and bounded so that the page stays small enough for a browser.

mod activity;
mod bounded_writer;
mod csp;
mod escape;
mod inert_markdown;
mod outline;
mod steps;
mod text_blocks;
mod timeline;
mod verdict;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::LazyLock;

use minijinja::{Environment, Value, context};

use self::activity::{RunClock, Span, TimeSplit, timeline_of};
use self::bounded_writer::BoundedWriter;
pub(crate) use self::csp::csp_hash;
use self::escape::{escape, escaped_length};
use self::outline::{AgentOutline, Outline};
use self::steps::{ConversationWriter, checks_context, safe};
use self::text_blocks::TextLimit;
use self::timeline::{Lane, MAX_LANES, draw};
use super::display::serialized_name;
use super::{proposed, run_stats};
use crate::conversation::{Call, Conversation, MAX_SHOWN_CHARS, ReplyBlock, StepKind, Text};
use crate::event::{CallEnd, ProposedOutputs, WorkspaceChanged};
use crate::git::binary_patch::without_data;
use crate::outputs::{OUTPUTS_FILE, PreviewPart};
use crate::plan::{Plan, PlannedAgent};
use crate::text::{format_size, pluralize, sanitize, truncate};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");
const TEMPLATES: [(&str, &str); 7] = [
    ("page.html", include_str!("page.html")),
    ("agent.html", include_str!("agent.html")),
    ("agent_end.html", include_str!("agent_end.html")),
    ("turn.html", include_str!("turn.html")),
    ("note.html", include_str!("note.html")),
    ("checks.html", include_str!("checks.html")),
    ("job.html", include_str!("job.html")),
];
/// The place of the conversation in the page.
const CONVERSATION_MARK: &str = "<!-- conversation -->";
/// The lengths to which the texts of a large run are cut, in characters.
const TEXT_LIMITS: [usize; 6] = [MAX_SHOWN_CHARS, 4_000, 1_500, 600, 250, 100];
/// The estimated size of the conversation for which texts are cut, in bytes.
const MAX_ESTIMATED_BYTES: usize = 11_000_000;
/// What an agent's step and a call need in addition to their texts, in bytes.
const STEP_BYTES: usize = 450;
const CALL_BYTES: usize = 550;
/// The size of the page at which the conversation isn't continued. What follows it has at most 3 MB.
const MAX_CONVERSATION_BYTES: usize = 15_500_000;
const MAX_ANSWER_CHARS: usize = 100_000;
const MAX_PATCH_CHARS: usize = 300_000;
const MAX_PROPOSED_CHARS: usize = 300_000;
const MAX_TITLE_CHARS: usize = 300;
const MAX_FILES: usize = 500;
const MAX_AGENTS: usize = 500;
const MAX_MISSING: usize = 20;

/// The compiled templates, which are the same for all reports: the rows of a map have a thousand.
static COMPILED: LazyLock<Result<Environment<'static>, String>> =
    LazyLock::new(|| environment().map_err(|error| error.to_string()));

/// Compiles the templates. A report does it otherwise, when someone waits for it.
pub fn compile_templates() {
    LazyLock::force(&COMPILED);
}

/// Whether [`compile_templates`] has nothing to do.
pub fn has_compiled_templates() -> bool {
    LazyLock::get(&COMPILED).is_some()
}

/// Writes a recorded run.
///
/// # Errors
/// Writing to `out` failed.
pub fn report(conversation: &Conversation, out: &mut dyn Write) -> io::Result<()> {
    let templates = COMPILED.as_ref().map_err(|error| io::Error::other(error.as_str()))?;
    let outline = Outline::of(conversation);
    let max_chars = text_limit(conversation);
    let page = templates.get_template("page.html").map_err(io::Error::other)?;
    let page = page.render(page_context(conversation, &outline, max_chars)).map_err(io::Error::other)?;
    let (head, foot) = page.split_once(CONVERSATION_MARK).unwrap_or((&page, ""));
    let mut out = BoundedWriter::new(out, MAX_CONVERSATION_BYTES);
    out.write(head)?;
    ConversationWriter::new(templates, conversation, &outline, max_chars).write(&mut out)?;
    out.write(foot)
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut templates = Environment::new();
    // The default one writes `&#x2f;` for each slash of a path.
    templates.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() => out.write_str(&escape(text)).map_err(minijinja::Error::from),
        _ => minijinja::escape_formatter(out, state, value),
    });
    // The names end in .html, which switches escaping on.
    for (name, text) in TEMPLATES {
        // A tag at the end of a line makes no empty line.
        let text = text.replace("%}\n", "%}");
        // Part of the template, so that pages don't copy them more often than they are written.
        let raw = |text: &str| format!("{{% raw %}}{text}{{% endraw %}}");
        let text = text.replace("{{ style|safe }}", &raw(STYLE)).replace("{{ script|safe }}", &raw(SCRIPT));
        templates.add_template_owned(name, text)?;
    }
    Ok(templates)
}

/// Makes control characters visible, which aren't allowed in HTML.
pub(crate) fn show_control_chars(text: &str) -> Cow<'_, str> {
    sanitize::replace_control_chars(text)
}

/// The most characters of a text with which the conversation has room on the page.
fn text_limit(conversation: &Conversation) -> usize {
    let mut sizes: Vec<(usize, usize)> = Vec::new();
    let mut fixed = 0;
    for agent in conversation.agents() {
        for step in &agent.steps {
            fixed += STEP_BYTES;
            match &step.kind {
                StepKind::Turn(turn) => {
                    fixed += CALL_BYTES * turn.calls.len();
                    sizes.extend(turn.blocks.iter().filter_map(block_size));
                    sizes.extend(turn.calls.iter().flat_map(call_sizes));
                }
                StepKind::Note(text) | StepKind::Compacted(_, text) | StepKind::Before(_, text) => {
                    sizes.push(size(&text.shown));
                }
                StepKind::Checks(attempt) => {
                    sizes.extend(attempt.checks.iter().filter_map(|(_, _, end)| Some(size(&end.as_ref()?.1.output))));
                }
                _ => {}
            }
        }
    }
    let at_limit = |limit: usize| -> usize {
        sizes.iter().map(|(chars, bytes)| if *chars <= limit { *bytes } else { bytes / chars * limit }).sum()
    };
    let fits = |limit: &usize| at_limit(*limit).saturating_add(fixed) <= MAX_ESTIMATED_BYTES;
    TEXT_LIMITS.into_iter().find(fits).unwrap_or(TEXT_LIMITS[TEXT_LIMITS.len() - 1])
}

fn block_size(block: &ReplyBlock) -> Option<(usize, usize)> {
    match block {
        ReplyBlock::Text(text) | ReplyBlock::Thinking(text) | ReplyBlock::Refusal(text) => Some(size(&text.shown)),
        ReplyBlock::Call(_) | ReplyBlock::Other(_) => None,
    }
}

fn call_sizes(call: &Call) -> impl Iterator<Item = (usize, usize)> {
    [Some(&call.input), call.result.as_ref()].into_iter().flatten().map(|text: &Text| size(&text.shown))
}

/// Characters, and bytes on the page.
fn size(text: &str) -> (usize, usize) {
    (text.chars().count(), escaped_length(text))
}

fn page_context(conversation: &Conversation, outline: &Outline<'_>, max_chars: usize) -> Value {
    let result = conversation.result.as_ref();
    let outcome = result.map_or(CallEnd::NotFinished.to_string(), |result| result.outcome.to_string());
    let journal = TextLimit { chars: MAX_ANSWER_CHARS, file: "result.json" };
    let (problems, more_problems) = verdict::problems(outline, result.is_some());
    let (hint, resume) = verdict::next_steps(conversation);
    let clock = RunClock::of(conversation, outline);
    let lanes: Vec<Lane> = outline.agents.iter().map(|outlined| lane(outlined, &clock)).collect();
    let split = TimeSplit::of(lanes.iter().flat_map(|lane| &lane.spans), clock.total());
    let run_id =
        result.map(|it| it.run_id.as_str()).or(conversation.started.as_ref().map(|(_, it)| it.run_id.as_str()));
    let state = match result {
        None => "open",
        Some(result) if result.exit_code == 0 => "good",
        Some(_) => "bad",
    };
    static HASHES: LazyLock<[String; 2]> = LazyLock::new(|| [STYLE, SCRIPT].map(csp_hash));
    context! {
        style_hash => HASHES[0].as_str(), script_hash => HASHES[1].as_str(),
        job => conversation.plan.job.as_str(), description => conversation.plan.description.as_deref(),
        outcome, state, run_id, exit_code => result.map(|result| result.exit_code),
        started => start_of(conversation), duration => run_stats::duration(result.map_or(clock.total(), |it| it.duration_ms)),
        reason => verdict::reason(conversation), hint => hint.map(|hint| safe(journal.markdown(&hint, 0))), resume, problems, more_problems,
        missing => conversation.missing.iter().take(MAX_MISSING).cloned().collect::<Vec<_>>(),
        more_missing => conversation.missing.len().saturating_sub(MAX_MISSING),
        answer => result.filter(|it| !it.text.trim().is_empty()).map(|it| safe(journal.markdown(&it.text, 0))),
        data => result.and_then(|it| it.result.as_ref()).map(|data| safe(journal.plain(&format!("{data:#}")))),
        figures => figures(conversation, outline, &split, &clock), split => split_context(&split, clock.total()),
        timeline => safe(draw(&lanes, clock.total())),
        lanes => lanes.iter().take(MAX_LANES).map(|lane| context! { id => lane.id.as_str(), anchor => lane.anchor.as_str() }).collect::<Vec<_>>(),
        hidden_lanes => lanes.len().saturating_sub(MAX_LANES),
        agents => outline.agents.iter().take(MAX_AGENTS).map(agent_context).collect::<Vec<_>>(),
        more_agents => outline.agents.len().saturating_sub(MAX_AGENTS),
        is_cut => max_chars < MAX_SHOWN_CHARS, max_chars => max_chars,
        proposed => conversation.proposed.as_ref().and_then(proposed_context),
        checks => checks(conversation, outline), files => conversation.changes.as_ref().and_then(files),
        job_section => job_context(conversation, outline),
    }
}

fn start_of(conversation: &Conversation) -> Option<String> {
    let at = conversation.result.as_ref().map(|it| it.started_at).or(conversation.started.as_ref().map(|(at, _)| *at));
    at.or(conversation.parent.started_at).map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

fn lane(outlined: &AgentOutline<'_>, clock: &RunClock) -> Lane {
    let (spans, marks) = timeline_of(outlined, clock);
    let agent = outlined.agent;
    let from = agent.started_at.map_or_else(|| spans.first().map_or(0, |span| span.from), |at| clock.at(at));
    let last = spans.iter().map(|span: &Span| span.to).max().unwrap_or(from);
    let to = agent.last_at.map_or(last, |at| clock.at(at).max(last));
    Lane { id: agent.id.clone(), life: (from, to), anchor: outlined.anchor.clone(), spans, marks }
}

/// The figures of the run: a name, a value, and what it is measured against.
fn figures(conversation: &Conversation, outline: &Outline<'_>, split: &TimeSplit, clock: &RunClock) -> Vec<Value> {
    let result = conversation.result.as_ref();
    let totals = outline.totals();
    let plan = effective_plan(conversation);
    let figure = |name: &str, value: String, detail: String, share: Option<f64>| {
        // An attribute of a meter, which needs no style.
        context! { name, value, detail, share => share.map(|share| format!("{:.3}", share.clamp(0.0, 1.0))) }
    };
    let mut figures = Vec::new();
    let time = result.map_or(clock.total(), |it| it.duration_ms);
    let limit = plan.limits.wall_clock_ms;
    figures.push(figure(
        "time",
        run_stats::duration(time),
        limit.map_or("no limit".to_owned(), |limit| format!("of {}", run_stats::duration(limit))),
        limit.map(|limit| time as f64 / limit.max(1) as f64),
    ));
    let cost = result.and_then(|it| it.cost_usd);
    let limit = plan.limits.cost_usd;
    if result.is_some() {
        figures.push(figure(
            "cost (estimate)",
            run_stats::cost(cost),
            run_stats::with_cut_off(
                limit.map_or("no limit".to_owned(), |limit| format!("of {}", run_stats::cost(Some(limit)))),
                &result.map(|it| it.cut_off_requests).unwrap_or_default(),
            ),
            cost.zip(limit).map(|(cost, limit)| cost / limit.max(f64::MIN_POSITIVE)),
        ));
    }
    if let Some(usage) = result.map(|it| it.usage) {
        let cached = u128::from(usage.cache_read_tokens) * 100 / u128::from(usage.prompt().max(1));
        let limit = plan.limits.tokens.map(|limit| format!("of {}", run_stats::tokens(limit)));
        let parts = format!(
            "{} in, {} out; {cached} % of the input from cache",
            run_stats::tokens(usage.prompt()),
            run_stats::tokens(usage.output_tokens)
        );
        figures.push(figure(
            "tokens",
            run_stats::tokens(usage.total()),
            limit.into_iter().chain([parts]).collect::<Vec<_>>().join("; "),
            plan.limits.tokens.map(|limit| usage.total() as f64 / limit.max(1) as f64),
        ));
    }
    let turns = result.map_or(outline.agents.first().map_or(0, |it| it.counts.turns), |it| u64::from(it.turns));
    let max_turns = u64::from(plan.parent.max_turns);
    let detail = match totals.turns.saturating_sub(turns) {
        0 => format!("of {max_turns}"),
        by_subagents => format!("of {max_turns} by the parent; {by_subagents} by subagents"),
    };
    figures.push(figure("turns", turns.to_string(), detail, Some(turns as f64 / max_turns.max(1) as f64)));
    let calls = plan.limits.tool_calls;
    let failed =
        if totals.failed_calls > 0 { format!("{} failed", totals.failed_calls) } else { "none failed".to_owned() };
    let of = calls.map(|limit| format!("of {limit}"));
    figures.push(figure(
        "tool calls",
        totals.calls.to_string(),
        of.into_iter().chain([failed]).collect::<Vec<_>>().join("; "),
        calls.map(|limit| totals.calls as f64 / limit.max(1) as f64),
    ));
    let tries =
        format!("{}; waited {}", pluralize(totals.refusals, "refusal"), run_stats::duration(split.summed_waits));
    figures.push(figure("retries", totals.retries.to_string(), tries, None));
    figures
}

/// The plan with the limits that were raised when the run was resumed.
fn effective_plan(conversation: &Conversation) -> Plan {
    let mut plan = conversation.plan.clone();
    for step in &conversation.parent.steps {
        if let StepKind::Resumed(resumed) = &step.kind {
            // A limit of another version of legwork changes nothing here.
            let _ = plan.set_limits(&resumed.limits);
        }
    }
    plan
}

fn split_context(split: &TimeSplit, total: u64) -> Value {
    let mut x = 0.0;
    let mut part = |class: &str, name: &str, ms: u64| {
        let width = ms as f64 * 100.0 / total.max(1) as f64;
        let from = x;
        x += width;
        context! { class, name, time => run_stats::duration(ms), percent => format!("{width:.0}"), x => format!("{from:.3}"), width => format!("{width:.3}") }
    };
    let parts = [
        part("model", "model", split.model),
        part("tool", "tools and checks", split.tools),
        part("wait", "waiting to retry", split.waits),
        part("other", "other", split.other),
    ];
    let is_parallel =
        split.summed_model > split.model || split.summed_tools > split.tools || split.summed_waits > split.waits;
    context! {
        parts => parts.to_vec(), is_parallel,
        summed_model => run_stats::duration(split.summed_model), summed_tools => run_stats::duration(split.summed_tools),
        summed_waits => run_stats::duration(split.summed_waits),
    }
}

fn agent_context(outlined: &AgentOutline<'_>) -> Value {
    let AgentOutline { agent, anchor, depth, counts, .. } = outlined;
    let end = agent.finished.as_ref();
    context! {
        id => agent.id.as_str(), anchor => anchor.as_str(), depth, description => agent.description.as_deref(), model => run_stats::agent_models(agent),
        outcome => end.map_or(CallEnd::NotFinished.to_string(), |end| end.outcome.to_string()),
        good => end.is_some_and(|end| end.outcome.is_success()),
        turns => end.map_or(counts.turns, |end| u64::from(end.turns)), calls => end.map_or(counts.calls, |end| end.tool_calls),
        failed => counts.failed_calls, retries => counts.retries,
        tokens => end.map(|end| steps::usage(&end.usage)), cost => end.map(|end| run_stats::cost(end.cost_usd)),
        time => end.map(|end| run_stats::duration(end.duration_ms)),
    }
}

/// The attempts of the checks. They have their anchors in the conversation.
fn checks(conversation: &Conversation, outline: &Outline<'_>) -> Vec<Value> {
    let limit = TextLimit { chars: 4_000, file: "events.jsonl" };
    let Some(parent) = outline.agents.first() else { return Vec::new() };
    let steps = parent.agent.steps.iter().zip(&parent.steps);
    let attempts = steps.filter_map(|(step, anchor)| match &step.kind {
        StepKind::Checks(attempt) => Some(checks_context(conversation, attempt, anchor, &parent.agent.id, &limit)),
        _ => None,
    });
    attempts.take(50).collect()
}

/// What the run proposes to do outside, and what was refused.
fn proposed_context(proposed: &ProposedOutputs) -> Option<Value> {
    let calls = &proposed.calls;
    if calls.is_empty() && !proposed.is_final {
        return None;
    }
    let mut left = MAX_PROPOSED_CHARS;
    let (views, more) = proposed::views(proposed);
    let mut part = |part: &PreviewPart| {
        let limit = TextLimit { chars: left.min(MAX_ANSWER_CHARS), file: OUTPUTS_FILE };
        let (text, html) = match part {
            PreviewPart::Line(line) => return context! { line => line.as_str() },
            PreviewPart::Markdown(text) => (text, limit.markdown(text, 0)),
            PreviewPart::Plain(text) => (text, limit.plain(text)),
        };
        left -= truncate::first(text, limit.chars).chars().count();
        context! { html => safe(html) }
    };
    let outputs: Vec<Value> = views
        .iter()
        .map(|view| {
            let parts: Vec<Value> = view.preview.parts.iter().map(&mut part).collect();
            context! { id => view.id, title => truncate::ellipsize(&view.preview.title, MAX_TITLE_CHARS), parts }
        })
        .collect();
    let limit = TextLimit { chars: MAX_ANSWER_CHARS, file: "events.jsonl" };
    let refused = calls.refused.iter().map(|refused| {
        let line = truncate::ellipsize(refused.why.lines().next().unwrap_or_default(), MAX_TITLE_CHARS);
        context! { title => proposed::refused_title(refused), line, why => safe(limit.plain(&refused.why)) }
    });
    let refused: Vec<Value> = refused.collect();
    let count = (!outputs.is_empty()).then(|| pluralize(calls.accepted.entries.len() as u64, "output"));
    let nothing = calls.accepted.nothing_to_do.as_ref().map(|reason| safe(limit.plain(reason)));
    let more_refused = proposed::more_refused(proposed);
    Some(context! { title => proposed::title(proposed), count, nothing, outputs, more, refused, more_refused })
}

/// The changed files, each with its part of the patch.
fn files(changed: &WorkspaceChanged) -> Option<Value> {
    if changed.changes.is_empty() && changed.incomplete.is_none() {
        return None;
    }
    let mut left = MAX_PATCH_CHARS;
    let mut patches: Vec<(String, String)> = Vec::new();
    for section in patch_sections(&changed.patch) {
        let section = without_data(section);
        let limit = TextLimit { chars: left, file: "changes.patch" };
        let header = section.lines().next().unwrap_or_default();
        let shown = truncate::first(&section, left);
        left -= shown.chars().count();
        if !shown.is_empty() {
            patches.push((header.to_owned(), limit.patch(&section)));
        }
        if left == 0 {
            break;
        }
    }
    let listed = changed.changes.iter().take(MAX_FILES).map(|change| {
        let end = format!(" b/{}", change.path);
        let quoted = format!("b/{}\"", change.path);
        let at = patches.iter().position(|(header, _)| header.ends_with(&end) || header.ends_with(&quoted));
        let html = at.map(|at| patches.remove(at).1);
        let lines = change.lines_added.zip(change.lines_removed);
        context! {
            path => change.path.as_str(), change => serialized_name(&change.change),
            binary => change.binary.map(format_size),
            added => lines.map(|(added, _)| added), removed => lines.map(|(_, removed)| removed), patch => html.map(safe),
        }
    });
    let listed: Vec<Value> = listed.collect();
    let total = changed.total.unwrap_or(changed.changes.len() as u64);
    // A path that git quotes differently: its part of the patch isn't lost.
    let rest: Vec<Value> = patches.into_iter().map(|(_, html)| safe(html)).collect();
    Some(context! {
        more => total.saturating_sub(listed.len() as u64), total => pluralize(total, "file"), listed, rest,
        is_cut => left == 0, incomplete => changed.incomplete.as_deref(),
    })
}

/// The parts of a patch, one for each file.
fn patch_sections(patch: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = patch.match_indices("\ndiff --git ").map(|(at, _)| at + 1).collect();
    if !patch.is_empty() {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    starts.iter().zip(ends).map(|(start, end)| &patch[*start..end]).collect()
}

/// What ran: the job file, the prompts, the tools and the versions.
fn job_context(conversation: &Conversation, outline: &Outline<'_>) -> Value {
    let plan = &conversation.plan;
    let started = conversation.started.as_ref().map(|(_, started)| started);
    let limit = TextLimit { chars: 40_000, file: "plan.json" };
    let source = TextLimit { chars: 60_000, file: "job.yaml" };
    let mut facts: Vec<(&str, String)> = vec![("job", plan.job.clone())];
    if let Some(started) = started {
        facts.push(("run", started.run_id.clone()));
        facts.push(("legwork", started.version.clone()));
        facts.extend(started.commit.clone().map(|commit| ("commit", commit)));
        facts.push(("sandbox", started.sandbox.clone()));
    }
    facts.push(("workspace", plan.workspace.clone()));
    facts.extend(outline.agents.first().map(|outlined| ("model", run_stats::agent_models(outlined.agent))));
    facts.push(("network of tools", serialized_name(&plan.network)));
    for (name, server) in &plan.mcp {
        let state = match (&server.missing, &server.tools) {
            (Some(why), _) => format!("left out: it {why}"),
            (None, Some(tools)) => pluralize(tools.len() as u64, "tool"),
            (None, None) => "not started".to_owned(),
        };
        facts.push(("tool server", truncate::ellipsize(&format!("{name}: {state}"), 1_000)));
    }
    for (name, value) in plan.inputs.iter().take(100) {
        let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        facts.push(("input", format!("{name} = {}", truncate::ellipsize(&value, 1_000))));
    }
    for name in plan.secret_inputs.iter().take(100) {
        facts.push(("input", format!("{name} (secret)")));
    }
    let names = std::iter::once("parent").chain(plan.subagents.keys().map(String::as_str));
    let agents: Vec<Value> =
        names.zip(plan.agents()).take(50).map(|(name, agent)| planned_agent(plan, name, agent, &limit)).collect();
    context! {
        facts, agents,
        source => started.map(|started| started.job_file.as_str()).filter(|text| !text.is_empty()).map(|text| safe(source.plain(text))),
    }
}

fn planned_agent(plan: &Plan, name: &str, agent: &PlannedAgent, limit: &TextLimit<'_>) -> Value {
    let specs = plan.tool_specs(agent).unwrap_or_default();
    let tools: Vec<Value> = specs
        .iter()
        .take(100)
        .map(|spec| {
            let options = agent.tools.iter().find(|grant| grant.name == spec.name).map(|grant| &grant.options);
            let options = options
                .filter(|options| !options.is_null())
                .map(|options| truncate::ellipsize(&options.to_string(), 2_000));
            context! {
                name => spec.name.as_str(), description => truncate::ellipsize(&spec.description, 4_000), options,
                schema => safe(limit.plain(&format!("{:#}", spec.input_schema))),
            }
        })
        .collect();
    let system = plan.system_prompt(agent);
    context! {
        name, tools, model => agent.models().map(ToString::to_string).collect::<Vec<_>>().join(", or "), max_turns => agent.max_turns, max_tokens => agent.max_tokens,
        system => (!system.is_empty()).then(|| safe(limit.plain(&system))),
        prompt => agent.prompt.as_ref().map(|prompt| safe(limit.plain(prompt))),
    }
}

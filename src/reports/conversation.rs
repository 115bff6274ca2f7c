//! A recorded run as people read it: what is shown of a conversation, and in which order. Each format is a [`Page`].

use std::io;

use super::call_input::{InputPart, input_parts, needs_block};
use super::problems::{Problem, problems_of};
use super::proposed::{self, ProposedView};
use super::run_stats;
use super::step_view::{self, Severity, StepView};
use crate::conversation::{
    AgentConversation, Call, CheckAttempt, Conversation, ReplyBlock, Step, StepKind, Text, Turn, TurnKind,
};
use crate::event::{CallEnd, Outcome, ProposedOutputs, WorkspaceChanged, summary_file};
use crate::journal::journal_file;
use crate::message::StopReason;
use crate::outputs::{OUTPUTS_FILE, PreviewPart};
use crate::plan::Plan;
use crate::text::{diff, pluralize, truncate};

/// The most calls of a subagent that are listed with its `task` call.
const MAX_CHILD_CALLS: usize = 100;

/// The most characters of each error in a list of errors.
const MAX_ERROR_CHARS: usize = 2_000;

/// A piece of a line. All texts are untrusted.
#[derive(Debug, Clone)]
pub(super) enum Span {
    /// A text that may have emphasis and code.
    Text(String),
    /// A text that is shown exactly as it is.
    Plain(String),
    Code(String),
    /// The box of a todo item, and whether it is done.
    Checkbox(bool),
    /// A name, and the file of the record about it, if there is one.
    Link(String, Option<String>),
}

/// A format that a conversation is written in.
pub(super) trait Page {
    /// A heading, from level 1. `failed`: it is that of a failure.
    fn heading(&mut self, level: usize, spans: &[Span], failed: bool) -> io::Result<()>;
    /// What happened in between.
    fn note(&mut self, text: &str) -> io::Result<()>;
    /// A list with one line per item.
    fn list(&mut self, items: &[Vec<Span>]) -> io::Result<()>;
    /// A text of a model.
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// The thinking of a model.
    fn thinking(&mut self, text: &str) -> io::Result<()>;
    /// A text that is shown as it is, with the name of its language or nothing.
    fn block(&mut self, language: &str, text: &str) -> io::Result<()>;
    /// An error of the run, and what to do about it.
    fn error(&mut self, code: &str, message: &str, hint: Option<&str>) -> io::Result<()>;
}

/// Writes the conversation of the parent, with what is known of the run. With `lists_calls`, the calls of each subagent are
/// listed.
pub(super) fn write_run(page: &mut dyn Page, conversation: &Conversation, lists_calls: bool) -> io::Result<()> {
    write_head(page, conversation)?;
    let view = View::new(conversation, &conversation.parent, lists_calls);
    view.write_system(page)?;
    view.write_conversation(page)?;
    conversation.proposed.iter().try_for_each(|proposed| write_proposed(page, proposed))?;
    conversation.changes.as_ref().map_or(Ok(()), |changed| write_changes(page, changed))
}

/// Writes the conversation of a subagent, with its figures.
pub(super) fn write_subagent(
    page: &mut dyn Page,
    conversation: &Conversation,
    agent: &AgentConversation,
) -> io::Result<()> {
    let outcome = agent.finished.as_ref().map_or(CallEnd::NotFinished.to_string(), |end| end.outcome.to_string());
    let failed = agent.finished.as_ref().is_some_and(|end| end.outcome != Outcome::Completed);
    page.heading(1, &[text(format!("{}: {outcome}", agent.id))], failed)?;
    let mut stats = vec![("model", run_stats::agent_models(agent))];
    if let Some(end) = &agent.finished {
        let figures = run_stats::agent_summary(end.turns, end.tool_calls, &end.usage, end.duration_ms);
        stats.push(("figures", figures));
        let cost = run_stats::estimated_cost(end.cost_usd);
        stats.push(("cost", run_stats::with_cut_off(cost, &end.cut_off_requests)));
    }
    let task = agent.description.iter().map(|task| vec![text("task: "), Span::Plain(task.clone())]);
    page.list(&task.chain(stats_items(stats)).collect::<Vec<_>>())?;
    if agent.has_no_journal {
        page.note(&format!("Its conversation isn't known: {} isn't there.", journal_file(&agent.id)))?;
    }
    let view = View::new(conversation, agent, false);
    view.write_system(page)?;
    view.write_conversation(page)
}

/// Writes one turn of an agent with everything up to the next one. Returns false if there is no such turn.
pub(super) fn write_turn(
    page: &mut dyn Page,
    conversation: &Conversation,
    agent: &AgentConversation,
    number: u32,
) -> io::Result<bool> {
    let view = View::new(conversation, agent, true);
    let mut found = false;
    let mut is_in_turn = false;
    for step in &agent.steps {
        if let StepKind::Turn(turn) = &step.kind {
            is_in_turn = turn.number == number;
        }
        if is_in_turn {
            found = true;
            view.write_step(page, step)?;
        }
    }
    Ok(found)
}

/// Writes what went wrong in a run, of all agents or one, in the order of time.
pub(super) fn write_errors(page: &mut dyn Page, conversation: &Conversation, agent: Option<&str>) -> io::Result<()> {
    write_head(page, conversation)?;
    let agents = conversation.agents().filter(|known| agent.is_none_or(|agent| known.id == agent));
    let has_ended = conversation.result.is_some();
    let of = |agent| problems_of(agent, has_ended).into_iter().map(move |problem| (agent, problem));
    let mut errors: Vec<(&AgentConversation, Problem<'_>)> = agents.flat_map(of).collect();
    errors.sort_by_key(|(_, problem)| problem.at);
    for (agent, problem) in &errors {
        let place = match problem.turn {
            Some(turn) => format!("{}, turn {}: ", agent.id, turn.number),
            None => format!("{}: ", agent.id),
        };
        page.heading(3, &[vec![text(place)], spans_of(&problem.view)].concat(), true)?;
        if !problem.text.shown.trim().is_empty() {
            page.block("", &truncate::truncate_middle(shown(agent, &problem.text), MAX_ERROR_CHARS))?;
        }
    }
    if errors.is_empty() {
        page.note("No call, check or request failed, and no limit was reached.")?;
    }
    Ok(())
}

fn text(text: impl Into<String>) -> Span {
    Span::Text(text.into())
}

/// A text, with a note on what isn't kept of it.
fn shown(agent: &AgentConversation, text: &Text) -> String {
    match text.omitted_chars {
        0 => text.shown.clone(),
        more => format!("{}\n[{more} more characters in {}]", text.shown, journal_file(&agent.id)),
    }
}

fn stats_items(stats: Vec<(&'static str, String)>) -> impl Iterator<Item = Vec<Span>> {
    stats.into_iter().map(|(name, value)| vec![text(format!("{name}: {value}"))])
}

fn write_head(page: &mut dyn Page, conversation: &Conversation) -> io::Result<()> {
    match &conversation.result {
        None => page.heading(1, &[text(format!("{}: not finished", conversation.plan.job))], false)?,
        Some(result) => {
            page.heading(1, &[text(format!("{}: {}", result.job, result.outcome))], result.exit_code != 0)?;
            page.list(&stats_items(run_stats::run_stats(result)).collect::<Vec<_>>())?;
            if let Some(error) = &result.error {
                page.error(&error.code, &error.message, error.hint.as_deref())?;
            }
            if let Some(data) = &result.result {
                page.heading(2, &[text("Result")], false)?;
                page.block("json", &truncate::ellipsize(&format!("{data:#}"), crate::conversation::MAX_SHOWN_CHARS))?;
            }
        }
    }
    conversation.missing.iter().try_for_each(|missing| page.note(&format!("Incomplete record: {missing}")))
}

fn write_changes(page: &mut dyn Page, changed: &WorkspaceChanged) -> io::Result<()> {
    if changed.changes.is_empty() && changed.incomplete.is_none() {
        return Ok(());
    }
    page.heading(2, &[text("Files changed")], false)?;
    page.block("", &run_stats::changed_file_lines(changed, run_stats::MAX_LISTED_FILES))?;
    if changed.patch.is_empty() {
        return Ok(());
    }
    let patch = "changes.patch".to_owned();
    page.list(&[vec![text("full diff: "), Span::Link(patch.clone(), Some(patch))]])
}

/// Writes what the run proposes to do outside, and what was refused.
fn write_proposed(page: &mut dyn Page, proposed: &ProposedOutputs) -> io::Result<()> {
    let calls = &proposed.calls;
    if calls.is_empty() && !proposed.is_final {
        return Ok(());
    }
    page.heading(2, &[text(proposed::title(proposed))], false)?;
    if let Some(reason) = &calls.accepted.nothing_to_do {
        page.heading(3, &[text("nothing to do")], false)?;
        page.block("", reason)?;
    } else if calls.accepted.entries.is_empty() {
        page.note("Nothing is proposed.")?;
    }
    let (views, more) = proposed::views(proposed);
    for ProposedView { id, preview } in views {
        let heading = [Span::Code(id.to_owned()), text(": "), Span::Plain(preview.title)];
        page.heading(3, &heading, false)?;
        for part in preview.parts {
            match part {
                PreviewPart::Line(line) => page.list(&[vec![Span::Plain(line)]])?,
                PreviewPart::Markdown(text) | PreviewPart::Plain(text) => {
                    let cut = Text::new(&text, crate::conversation::MAX_SHOWN_CHARS);
                    let more = pluralize(cut.omitted_chars, "more character");
                    let rest =
                        if cut.omitted_chars == 0 { String::new() } else { format!("\n[{more} in {OUTPUTS_FILE}]") };
                    page.block("", &(cut.shown + &rest))?;
                }
            }
        }
    }
    if more > 0 {
        page.note(&format!("and {} in {OUTPUTS_FILE}", pluralize(more, "more output")))?;
    }
    for refused in &calls.refused {
        page.heading(3, &[Span::Plain(proposed::refused_title(refused))], true)?;
        page.block("", &refused.why)?;
    }
    match proposed::more_refused(proposed) {
        0 => Ok(()),
        more => page.note(&format!("and {}", pluralize(more, "more refused call"))),
    }
}

/// A step in a line: what it is, its argument, the subagent that answers it, and how it ended.
pub(super) fn spans_of(view: &StepView<'_>) -> Vec<Span> {
    let mut line = vec![text(view.title.as_str())];
    if !view.argument.is_empty() {
        // A reader of Markdown that doesn't know this code span must not see a link or an image.
        let is_plain = !view.argument.contains(['[', '<', '`']);
        let argument = view.argument.to_owned();
        line.extend([text(" "), if is_plain { Span::Code(argument) } else { Span::Plain(argument) }]);
    }
    if let Some(child) = view.child {
        let file = child.finished.is_some().then(|| summary_file(&child.id));
        line.extend([text(": "), Span::Link(child.id.clone(), file)]);
    }
    let outcome = view.outcome();
    if !outcome.is_empty() {
        line.push(text(if view.is_timed() { format!(" ({outcome})") } else { format!(": {outcome}") }));
    }
    line
}

/// An agent of a run that is shown.
#[derive(Clone, Copy)]
pub(super) struct View<'c> {
    pub(super) plan: &'c Plan,
    /// Whether the run has ended.
    pub(super) has_ended: bool,
    pub(super) agent: &'c AgentConversation,
    /// Whether the calls of subagents are listed with the calls that started them.
    pub(super) lists_calls: bool,
}

impl<'c> View<'c> {
    fn new(conversation: &'c Conversation, agent: &'c AgentConversation, lists_calls: bool) -> Self {
        let has_ended = conversation.result.is_some();
        Self { plan: &conversation.plan, has_ended, agent, lists_calls }
    }

    fn write_system(&self, page: &mut dyn Page) -> io::Result<()> {
        let system =
            self.plan.agent(&self.agent.id).map(|planned| self.plan.system_prompt(planned)).unwrap_or_default();
        if system.is_empty() {
            return Ok(());
        }
        page.heading(2, &[text("System")], false)?;
        self.block(page, "", &Text::new(&system, crate::conversation::MAX_SHOWN_CHARS))
    }

    /// Writes the first message.
    pub(super) fn write_prompt(&self, page: &mut dyn Page) -> io::Result<()> {
        if self.agent.prompt.is_empty() {
            return Ok(());
        }
        page.heading(2, &[text("Prompt")], false)?;
        self.block(page, "", &self.agent.prompt)
    }

    /// Writes the prompt and all steps.
    fn write_conversation(&self, page: &mut dyn Page) -> io::Result<()> {
        self.write_prompt(page)?;
        self.agent.steps.iter().try_for_each(|step| self.write_step(page, step))
    }

    fn block(&self, page: &mut dyn Page, language: &str, text: &Text) -> io::Result<()> {
        page.block(language, &shown(self.agent, text))
    }

    /// Writes a step.
    pub(super) fn write_step(&self, page: &mut dyn Page, step: &Step) -> io::Result<()> {
        match &step.kind {
            StepKind::Turn(turn) => return self.write_turn(page, turn),
            StepKind::Checks(attempt) => return self.write_checks(page, attempt),
            _ => {}
        }
        let Some(view) = StepView::of_step(step) else { return Ok(()) };
        match view.note.as_str() {
            "" => page.heading(2, &[text(view.title.as_str())], false)?,
            _ => page.note(&view.line())?,
        }
        let Some((heading, block)) = view.block else { return Ok(()) };
        if !heading.is_empty() {
            page.heading(2, &[text(heading)], false)?;
        }
        self.block(page, "", block)
    }

    /// Writes a turn: what comes before its reply, the reply, and its calls.
    fn write_turn(&self, page: &mut dyn Page, turn: &Turn) -> io::Result<()> {
        self.begin_turn(page, turn)?;
        (0..turn.blocks.len()).try_for_each(|index| self.write_block(page, turn, index))?;
        self.end_turn(page, turn)
    }

    /// Writes what comes before the blocks of a reply.
    pub(super) fn begin_turn(&self, page: &mut dyn Page, turn: &Turn) -> io::Result<()> {
        // A summary is shown by the step after the request for it.
        if turn.failed.is_none() && turn.kind != TurnKind::Summary {
            page.heading(2, &[text(step_view::turn_title(turn))], false)?;
            if turn.replied_at.is_some() && turn.usage.total() > 0 {
                let cost = turn.cost_usd.map(|usd| format!(", {}", run_stats::cost(Some(usd)))).unwrap_or_default();
                let (time, usage) = (run_stats::duration(turn.duration_ms), run_stats::usage(&turn.usage));
                page.note(&format!("{time}, {usage}{cost}"))?;
            }
        }
        step_view::notes_before_reply(turn, self.has_ended).iter().try_for_each(|note| page.note(&note.line()))
    }

    /// Writes a block of a reply; a call with its result.
    pub(super) fn write_block(&self, page: &mut dyn Page, turn: &Turn, index: usize) -> io::Result<()> {
        if turn.kind == TurnKind::Summary {
            return Ok(());
        }
        match turn.blocks.get(index) {
            None => Ok(()),
            Some(ReplyBlock::Text(text)) => page.text(&shown(self.agent, text)),
            Some(ReplyBlock::Thinking(text)) => page.thinking(&shown(self.agent, text)),
            Some(ReplyBlock::Refusal(why)) => page.note(&step_view::of_refusal(&shown(self.agent, why)).line()),
            Some(ReplyBlock::Other(kind)) => page.note(&format!("(a block of type `{kind}`)")),
            Some(ReplyBlock::Call(_)) => turn.call_at(index).map_or(Ok(()), |call| self.write_call(page, call)),
        }
    }

    /// Writes what comes after the blocks of a reply.
    pub(super) fn end_turn(&self, page: &mut dyn Page, turn: &Turn) -> io::Result<()> {
        // Only a planted journal has calls that no reply asked for.
        let asked = turn.blocks.iter().filter(|block| matches!(block, ReplyBlock::Call(_))).count();
        turn.calls.iter().skip(asked).try_for_each(|call| self.write_call(page, call))?;
        step_view::notes_after_reply(turn).iter().try_for_each(|note| page.note(&note.line()))
    }

    fn write_call(&self, page: &mut dyn Page, call: &Call) -> io::Result<()> {
        let view = StepView::of_call(call);
        page.heading(3, &spans_of(&view), view.severity == Severity::Failure)?;
        if let Some(end) = call.child.as_ref().and_then(|child| child.finished.as_ref())
            && end.compactions > 0
        {
            page.note(&format!("Its conversation was compacted {}", run_stats::times(end.compactions)))?;
        }
        self.write_input(page, call)?;
        if let Some(child) = call.child.as_ref().filter(|_| self.lists_calls) {
            let calls = child.turns().flat_map(|turn| turn.calls.iter().map(|call| (turn.number, call)));
            let item = |(turn, call): (u32, &Call)| {
                [vec![text(format!("turn {turn}: "))], spans_of(&StepView::of_call(call))].concat()
            };
            let mut items: Vec<Vec<Span>> = calls.clone().take(MAX_CHILD_CALLS).map(item).collect();
            let more = calls.skip(MAX_CHILD_CALLS).count();
            items.extend((more > 0).then(|| vec![text(format!("and {more} more calls"))]));
            if !items.is_empty() {
                page.list(&items)?;
            }
        }
        match &call.result {
            Some(result) if result.is_empty() => page.note("Empty result.")?,
            Some(result) => self.block(page, "", result)?,
            None => {}
        }
        match call.truncated_to {
            Some(chars) => page.note(&format!("Later, the model saw at most {chars} characters of this result")),
            None => Ok(()),
        }
    }

    fn write_input(&self, page: &mut dyn Page, call: &Call) -> io::Result<()> {
        for part in input_parts(call) {
            match part {
                InputPart::Json(text) => self.block(page, "json", &text)?,
                InputPart::Items(items) => {
                    let item = |(is_done, item)| vec![Span::Checkbox(is_done), text(item)];
                    page.list(&items.into_iter().map(item).collect::<Vec<_>>())?;
                }
                InputPart::Fields(fields) => {
                    let item = |(name, value)| vec![text(format!("{name}: ")), Span::Code(value)];
                    page.list(&fields.into_iter().map(item).collect::<Vec<_>>())?;
                }
                InputPart::Field(name, value) => {
                    page.list(&[vec![text(format!("{name}:"))]])?;
                    page.block("", &value)?;
                }
                InputPart::Edit(old, new) => page.block("diff", &replacement_diff(&old, &new))?,
            }
        }
        Ok(())
    }

    fn write_checks(&self, page: &mut dyn Page, attempt: &CheckAttempt) -> io::Result<()> {
        page.heading(2, &[text(step_view::checks_title(attempt))], false)?;
        for (index, (name, _, end)) in attempt.checks.iter().enumerate() {
            let view = StepView::of_check_at(attempt, index);
            page.heading(3, &spans_of(&view), view.severity == Severity::Failure)?;
            match self.plan.checks.iter().find(|check| check.name == *name) {
                Some(check) if needs_block(&check.run) => page.block("sh", check.run.trim_end())?,
                Some(check) => page.list(&[vec![text("run: "), Span::Code(check.run.clone())]])?,
                None => {}
            }
            if let Some((_, end)) = end.as_ref().filter(|(_, end)| !end.output.trim().is_empty()) {
                page.block("", &end.output)?;
            }
        }
        Ok(())
    }
}

impl Turn {
    /// The call at this index of the blocks, if it is one.
    pub(super) fn call_at(&self, index: usize) -> Option<&Call> {
        match self.blocks.get(index)? {
            ReplyBlock::Call(call) => self.calls.get(*call),
            _ => None,
        }
    }

    /// Whether the block at this index is a call that hasn't ended yet.
    pub(super) fn is_waiting_at(&self, index: usize) -> bool {
        self.discarded.is_none() && self.call_at(index).is_some_and(|call| call.result.is_none())
    }

    /// Why the reply to a request for a summary couldn't be used, if it couldn't.
    pub(super) fn unusable_summary_reason(&self) -> Option<&'static str> {
        let has_text = |block: &ReplyBlock| matches!(block, ReplyBlock::Text(text) if !text.shown.trim().is_empty());
        match self.stop {
            Some(StopReason::Refusal) => Some("was refused"),
            Some(StopReason::ContextFull) => Some("was cut off by the context window"),
            _ if !self.blocks.iter().any(has_text) => Some("is empty"),
            _ => None,
        }
    }
}

/// A replacement as the lines of a diff.
fn replacement_diff(old: &str, new: &str) -> String {
    let mut lines = String::new();
    for hunk in diff::hunks(old, new) {
        if !lines.is_empty() {
            lines.push_str("@@ @@\n");
        }
        for (sign, line) in &hunk.lines {
            lines.push(*sign);
            lines.push_str(line.trim_end_matches(['\n', '\r']));
            lines.push('\n');
        }
    }
    lines
}

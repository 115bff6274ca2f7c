//! Conversations as text for a terminal, and as Markdown elsewhere: all of one agent, one turn, what went wrong, or what has
//! happened since.

use std::io::{self, Write};

use super::DisplayOptions;
use super::conversation::{Page, Span, View, spans_of, write_errors, write_run, write_subagent, write_turn};
use super::markdown::MarkdownPage;
use super::step_view::StepView;
use crate::conversation::{AgentConversation, Conversation, StepKind, Turn};
use crate::event::PARENT;
use crate::plan::Plan;
use crate::text::sanitize;

/// SGR parameters.
const BOLD: &str = "1";
const TURN: &str = "1;36";
const FAILED: &str = "1;31";
const FAINT: &str = "2";
const ADDED: &str = "32";
const REMOVED: &str = "31";

/// What is shown of a run.
#[derive(Debug, Clone, Copy)]
pub enum Selection<'a> {
    /// The conversation of this agent.
    Agent(&'a AgentConversation),
    /// One turn of this agent.
    Turn(&'a AgentConversation, u32),
    /// What went wrong, of all agents or this one.
    Errors(Option<&'a AgentConversation>),
}

/// The output of a conversation: a terminal, or anything else, which gets Markdown.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// A terminal with these options.
    Terminal(DisplayOptions),
    /// A file or a program.
    Markdown,
}

impl Target {
    fn page<'w>(self, out: &'w mut dyn Write) -> Box<dyn Page + 'w> {
        match self {
            Self::Terminal(display) => Box::new(TextPage { out, display }),
            Self::Markdown => Box::new(MarkdownPage { out }),
        }
    }
}

/// Writes a part of a run. Returns false if there is no such turn.
///
/// # Errors
/// Writing to `out` failed.
pub fn write_selection(
    conversation: &Conversation,
    selection: Selection<'_>,
    target: Target,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut page = target.page(out);
    match selection {
        Selection::Agent(agent) if agent.id == PARENT => write_run(&mut *page, conversation, true)?,
        Selection::Agent(agent) => write_subagent(&mut *page, conversation, agent)?,
        Selection::Turn(agent, number) => return write_turn(&mut *page, conversation, agent, number),
        Selection::Errors(agent) => write_errors(&mut *page, conversation, agent.map(|agent| agent.id.as_str()))?,
    }
    Ok(true)
}

/// How much of an agent's conversation was shown.
#[derive(Debug, Default)]
pub struct Progress {
    has_begun: bool,
    /// The steps that were shown whole.
    steps: usize,
    /// Whether the next step was begun, and how many of its blocks were shown.
    is_in_turn: bool,
    blocks: usize,
}

impl Progress {
    /// Writes what is complete and wasn't shown before: the text of a reply once it is there, and each call once it and all
    /// calls before it have their results. Before the call of a subagent, `write_child` writes what that one did. `has_ended`:
    /// nothing more comes.
    ///
    /// # Errors
    /// Writing to `out` failed.
    pub fn write(
        &mut self,
        plan: &Plan,
        has_ended: bool,
        agent: &AgentConversation,
        target: Target,
        out: &mut dyn Write,
        mut write_child: impl FnMut(&str, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let view = View { plan, has_ended, agent, lists_calls: false };
        if !self.has_begun && agent.started_at.is_some() {
            self.has_begun = true;
            view.write_prompt(&mut *target.page(out))?;
        }
        while let Some(step) = agent.steps.get(self.steps) {
            let is_last = self.steps + 1 == agent.steps.len();
            match &step.kind {
                StepKind::Turn(turn) => {
                    if !self.write_turn(&view, turn, is_last, target, out, &mut write_child)? {
                        return Ok(());
                    }
                }
                // The rest of its checks may follow.
                StepKind::Checks(_) if is_last && !has_ended => return Ok(()),
                _ => view.write_step(&mut *target.page(out), step)?,
            }
            self.steps += 1;
            (self.is_in_turn, self.blocks) = (false, 0);
        }
        Ok(())
    }

    /// Writes a line for each call of an agent that has ended and wasn't shown before.
    ///
    /// # Errors
    /// Writing to `out` failed.
    pub fn write_calls(&mut self, agent: &AgentConversation, target: Target, out: &mut dyn Write) -> io::Result<()> {
        let mut page = target.page(out);
        while let Some(step) = agent.steps.get(self.steps) {
            if let StepKind::Turn(turn) = &step.kind {
                while let Some(call) = turn.calls.get(self.blocks).filter(|call| call.result.is_some()) {
                    let place = Span::Text(format!("{}, turn {}: ", agent.id, turn.number));
                    page.list(&[[vec![place], spans_of(&StepView::of_call(call))].concat()])?;
                    self.blocks += 1;
                }
            }
            // Calls of this step may still end.
            if self.steps + 1 == agent.steps.len() {
                return Ok(());
            }
            (self.steps, self.blocks) = (self.steps + 1, 0);
        }
        Ok(())
    }

    /// Writes what is complete of a turn. Returns whether that is all.
    fn write_turn(
        &mut self,
        view: &View<'_>,
        turn: &Turn,
        is_last: bool,
        target: Target,
        out: &mut dyn Write,
        write_child: &mut impl FnMut(&str, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<bool> {
        let is_open = is_last && !view.has_ended && view.agent.finished.is_none();
        if turn.replied_at.is_none() && is_open {
            return Ok(false);
        }
        if !self.is_in_turn {
            self.is_in_turn = true;
            view.begin_turn(&mut *target.page(out), turn)?;
        }
        while self.blocks < turn.blocks.len() {
            if is_open && turn.is_waiting_at(self.blocks) {
                return Ok(false);
            }
            if let Some(child) = turn.call_at(self.blocks).and_then(|call| call.child.as_ref()) {
                write_child(&child.id, out)?;
            }
            view.write_block(&mut *target.page(out), turn, self.blocks)?;
            self.blocks += 1;
        }
        view.end_turn(&mut *target.page(out), turn)?;
        Ok(true)
    }
}

/// A conversation as text. Everything untrusted is sanitized for a terminal.
struct TextPage<'w> {
    out: &'w mut dyn Write,
    display: DisplayOptions,
}

fn plain(span: &Span) -> &str {
    match span {
        Span::Text(text) | Span::Plain(text) | Span::Code(text) | Span::Link(text, _) => text,
        Span::Checkbox(true) => "[x] ",
        Span::Checkbox(false) => "[ ] ",
    }
}

impl TextPage<'_> {
    fn line_of(spans: &[Span]) -> String {
        sanitize::line(&spans.iter().map(plain).collect::<String>())
    }

    fn write_text(&mut self, text: &str, indent: &str, paint: impl Fn(&str) -> Option<&'static str>) -> io::Result<()> {
        for line in sanitize::text(text.trim_end()).lines() {
            let line = line.replace('\t', "    ");
            let line = paint(&line).map_or_else(|| line.clone(), |sgr| self.display.paint(&line, sgr));
            writeln!(self.out, "{}", format!("{indent}{line}").trim_end())?;
        }
        writeln!(self.out)
    }
}

impl Page for TextPage<'_> {
    fn heading(&mut self, level: usize, spans: &[Span], failed: bool) -> io::Result<()> {
        let sgr = match level {
            _ if failed => FAILED,
            2 => TURN,
            _ => BOLD,
        };
        let mark = match level {
            3 if failed => "✗ ",
            3 => "● ",
            _ => "",
        };
        writeln!(self.out, "{}", self.display.paint(&format!("{mark}{}", Self::line_of(spans)), sgr))?;
        // What belongs to a call follows directly.
        if level == 3 { Ok(()) } else { writeln!(self.out) }
    }

    fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}\n", self.display.paint(&sanitize::line(text), FAINT))
    }

    fn list(&mut self, items: &[Vec<Span>]) -> io::Result<()> {
        items.iter().try_for_each(|item| writeln!(self.out, "  {}", Self::line_of(item)))?;
        writeln!(self.out)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.write_text(text, "", |_| None)
    }

    fn thinking(&mut self, text: &str) -> io::Result<()> {
        self.write_text(text, "  ┊ ", |_| Some(FAINT))
    }

    fn block(&mut self, language: &str, text: &str) -> io::Result<()> {
        let is_diff = language == "diff";
        self.write_text(text, "    ", |line| match line.chars().next() {
            Some('+') if is_diff => Some(ADDED),
            Some('-') if is_diff => Some(REMOVED),
            _ => None,
        })
    }

    fn error(&mut self, code: &str, message: &str, hint: Option<&str>) -> io::Result<()> {
        let code = self.display.paint(&sanitize::line(code), FAILED);
        writeln!(self.out, "{code}: {}", sanitize::line(message))?;
        if let Some(hint) = hint {
            writeln!(self.out, "{}", sanitize::line(hint))?;
        }
        writeln!(self.out)
    }
}

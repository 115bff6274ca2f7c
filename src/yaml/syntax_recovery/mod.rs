//! Reading on after a syntax error.
//!
//! What can't be read is blanked out, byte for byte, so that all places stay true, and the rest is parsed again. Of
//! several ways to mend an error the one is taken after which the parser comes farthest, and of those the first.

mod brackets;
pub(super) mod lines;
mod merge_conflicts;
mod misplaced_lines;
mod open_delimiters;
mod probe;
mod quotes;
mod tabs;
mod values;

use std::ops::Range;
use std::sync::Arc;

use granit_parser::ErrorKind;

use self::lines::Lines;
use self::probe::{LastTokenKind, ParseBudget, ParseFailure, probe};
use super::parse::clamp_range;
use super::parse_messages;
use crate::diagnostic::{Diagnostic, Source, SourceSpan};

/// How many errors are mended; behind the next one nothing is read.
const MAX_ROUNDS: usize = 20;

/// A text that the parser takes.
pub(super) struct RecoveredText {
    /// As long as the source, and the same but for the holes.
    pub(super) text: String,
    pub(super) gaps: Vec<RecoveryGap>,
    pub(super) found: Vec<Diagnostic>,
    /// Errors remain behind the last hole, which reaches to the end.
    pub(super) is_truncated: bool,
}

/// A stretch of the source that reads otherwise in the mended text.
#[derive(Debug, Clone)]
pub(super) struct RecoveryGap {
    pub(super) span: Range<usize>,
    /// Something that the author wrote is gone.
    pub(super) is_data_lost: bool,
}

/// A change that leaves every other byte where it is.
#[derive(Clone)]
struct RecoveryEdit {
    span: Range<usize>,
    fill: u8,
    is_data_lost: bool,
}

impl RecoveryEdit {
    /// Leaves a stretch out; its line ends stay.
    fn blank(span: Range<usize>) -> Self {
        Self { span, fill: b' ', is_data_lost: true }
    }

    /// Leaves out a value within brackets; something must stand between their commas.
    fn placeholder(span: Range<usize>) -> Vec<Self> {
        let first = Self { span: span.start..span.start + 1, fill: b'~', is_data_lost: true };
        vec![Self::blank(span), first]
    }
}

/// What is said about an error, and the ways to mend it, the best first where several lead equally far.
struct Diagnosis {
    finding: Diagnostic,
    candidates: Vec<Vec<RecoveryEdit>>,
    /// What is said where the last of the ways is taken.
    fallback_finding: Option<Diagnostic>,
}

/// Where the parser stopped, and what stands around it.
struct ErrorContext<'a> {
    source: &'a Arc<Source>,
    text: &'a str,
    lines: Lines<'a>,
    failure: &'a ParseFailure,
}

/// Mends a text that the parser doesn't take.
///
/// # Errors
/// The finding behind which there is no sense in reading on.
pub(super) fn recover_syntax(source: &Arc<Source>, text: String) -> Result<RecoveredText, Box<Diagnostic>> {
    let mut mended = RecoveredText { text, gaps: Vec::new(), found: Vec::new(), is_truncated: false };
    let mut purse = ParseBudget::new();
    let mut failure = probe(&mended.text, &mut purse);
    for round in 0.. {
        let Some(current) = failure else { return Ok(mended) };
        let spot =
            ErrorContext { source, text: &mended.text, lines: Lines { source, text: &mended.text }, failure: &current };
        if round == 0 {
            let conflicts = merge_conflicts::conflicts(&spot);
            if !conflicts.is_empty() {
                let (found, edits): (Vec<_>, Vec<_>) = conflicts.into_iter().unzip();
                mended.found.extend(found);
                mended.apply(&edits.concat());
                failure = probe(&mended.text, &mut purse);
                continue;
            }
        }
        if current.kind == ErrorKind::RecursionLimitExceeded {
            return Err(Box::new(parse_messages::finding(source, &current.kind, current.at)));
        }
        let mut diagnosis = spot.diagnose();
        if diagnosis.candidates.is_empty() {
            diagnosis.candidates = spot.without_line(spot.lines.of(current.at));
        }
        if round >= MAX_ROUNDS || purse.is_exhausted() {
            let from = spot.lines.content(spot.lines.of(diagnosis.first_affected_byte(&spot))).start;
            mended.report(diagnosis.finding);
            mended.apply(&[RecoveryEdit::blank(from..mended.text.len())]);
            mended.is_truncated = true;
            if probe(&mended.text, &mut purse).is_some() {
                mended.apply(&[RecoveryEdit::blank(0..mended.text.len())]);
            }
            return Ok(mended);
        }
        let count = diagnosis.candidates.len();
        let mut best: Option<(usize, usize, Vec<RecoveryEdit>, Option<ParseFailure>)> = None;
        for (number, way) in diagnosis.candidates.into_iter().enumerate() {
            let outcome = probe(&apply_edits(&mended.text, &way), &mut purse);
            let reached = current.progress_with(outcome.as_ref(), way.iter().all(|edit| edit.fill == b','));
            if best.as_ref().is_none_or(|(farthest, ..)| reached > *farthest) {
                best = Some((reached, number, way, outcome));
            }
            if reached == usize::MAX || purse.is_exhausted() {
                break;
            }
        }
        failure = match best {
            Some((_, number, way, outcome)) => {
                let is_last = number + 1 == count;
                mended.report(diagnosis.fallback_finding.filter(|_| is_last).unwrap_or(diagnosis.finding));
                mended.apply(&way);
                outcome
            }
            None => Some(current),
        };
    }
    Ok(mended)
}

impl Diagnosis {
    fn new(finding: Diagnostic, ways: Vec<Vec<RecoveryEdit>>) -> Self {
        Self { finding, candidates: ways, fallback_finding: None }
    }

    /// The first byte that would have to go.
    fn first_affected_byte(&self, spot: &ErrorContext<'_>) -> usize {
        let edits = self.candidates.iter().flatten().map(|edit| edit.span.start);
        edits.chain([spot.failure.at, self.finding.span.range.start]).min().unwrap_or(0)
    }
}

impl RecoveredText {
    /// Takes in a finding, unless it is about something that is gone already.
    fn report(&mut self, finding: Diagnostic) {
        let is_within =
            |hole: &RecoveryGap| hole.span.start <= finding.span.range.start && finding.span.range.end <= hole.span.end;
        if !self.gaps.iter().any(is_within) {
            self.found.push(finding);
        }
    }

    fn apply(&mut self, edits: &[RecoveryEdit]) {
        self.text = apply_edits(&self.text, edits);
        self.gaps
            .extend(edits.iter().map(|edit| RecoveryGap { span: edit.span.clone(), is_data_lost: edit.is_data_lost }));
    }
}

/// A text without its holes, which are blanked out.
pub(super) fn blank_gaps(text: &str, holes: &[RecoveryGap]) -> String {
    let edits: Vec<RecoveryEdit> = holes.iter().map(|hole| RecoveryEdit::blank(hole.span.clone())).collect();
    apply_edits(text, &edits)
}

fn apply_edits(text: &str, edits: &[RecoveryEdit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for RecoveryEdit { span, fill: with, .. } in edits {
        for byte in bytes.get_mut(span.clone()).into_iter().flatten() {
            if *with != b' ' || !matches!(byte, b'\n' | b'\r') {
                *byte = *with;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| " ".repeat(text.len()))
}

impl ErrorContext<'_> {
    fn diagnose(&self) -> Diagnosis {
        use ErrorKind as E;
        if let Some(line) = self.block_line() {
            return self.block_text(line);
        }
        match &self.failure.kind {
            _ if self.runs_out_of_brackets() => self.bracket(),
            _ if self.failure.brackets.is_empty() && self.tab_in(self.lines.of(self.failure.at)).is_some() => {
                self.tab()
            }
            kind if parse_messages::is_tab_error(kind) => self.tab(),
            E::UnclosedQuotedScalar
            | E::InvalidQuotedScalarIndent
            | E::DocumentIndicatorInQuotedScalar
            | E::InvalidTrailingSingleQuotedScalar
            | E::InvalidTrailingDoubleQuotedScalar
            | E::UnknownQuotedScalarEscape
            | E::InvalidQuotedScalarHexEscape
            | E::InvalidUnicodeEscape
            | E::InvalidLowSurrogateHexEscape
            | E::InvalidLowSurrogate
            | E::MissingLowSurrogate
            | E::UnpairedLowSurrogate => self.quote(),
            E::MisplacedFlowCollectionEnd => self.stray_bracket(),
            E::UnexpectedCharacter { .. } => self.character(),
            _ if !self.failure.brackets.is_empty() || matches!(self.failure.kind, E::UnclosedFlowCollection { .. }) => {
                self.bracket()
            }
            E::MappingValueNotAllowed => self.colon(),
            E::SimpleKeyExpected | E::InvalidSimpleKey => self.missing_key(self.lines.of(self.failure.at)),
            E::ExpectedBlockMappingKey | E::ExpectedBlockSequenceEntry => self.missing_entry(),
            E::ExpectedDocumentStart if self.failure.last_token.end > 0 => {
                self.misplaced_line(self.lines.of(self.failure.at))
            }
            _ => self.unclassified(),
        }
    }

    fn place(&self, span: Range<usize>) -> SourceSpan {
        SourceSpan { source: Arc::clone(self.source), range: clamp_range(&self.source.text, span) }
    }

    fn error(&self, span: Range<usize>, message: impl Into<String>, help: &str) -> Diagnostic {
        Diagnostic::error("yaml-syntax", self.place(span), message).help(help)
    }

    /// What the parser says, in our words.
    fn parser_finding(&self) -> Diagnostic {
        parse_messages::finding(self.source, &self.failure.kind, self.failure.at)
    }

    fn unclassified(&self) -> Diagnosis {
        let mut line = self.lines.of(self.failure.at);
        if self.failure.kind == ErrorKind::ExpectedDocumentStart && line > 1 {
            line -= 1;
        }
        Diagnosis::new(self.parser_finding(), self.without_value_at(line, self.failure.at))
    }

    /// Ways to leave out the value of a line that `at` lies in; the line, where it lies in no value.
    fn without_value_at(&self, line: usize, at: usize) -> Vec<Vec<RecoveryEdit>> {
        match self.lines.value_start(line) {
            Some(start) if start <= at => self.without_value(line, start),
            _ => self.without_line(line),
        }
    }

    /// Ways to leave out a value that begins in a line: with the text that goes on below it, with all that is
    /// indented below it, with all up to the next entry beside it.
    fn without_value(&self, line: usize, start: usize) -> Vec<Vec<RecoveryEdit>> {
        let lines = self.lines;
        let column = lines.key_column(line);
        let text = lines.end_while(line, |below| lines.indent(below) > column && !lines.is_entry(below));
        let deeper = lines.end_while(line, |below| lines.indent(below) > column);
        let beside = lines.end_while(line, |below| lines.indent(below) > column || !lines.is_entry(below));
        blanks(start, [text, deeper, beside])
    }

    /// Ways to leave out a whole line: alone, with what is indented below it, with all up to the next entry beside it.
    fn without_line(&self, line: usize) -> Vec<Vec<RecoveryEdit>> {
        let lines = self.lines;
        let indent = lines.indent(line);
        let Range { start, end } = lines.content(line);
        let deeper = lines.end_while(line, |below| lines.indent(below) > indent);
        let beside = lines.end_while(line, |below| lines.indent(below) > indent || !lines.is_entry(below));
        let opens = lines.value_start(line).is_none_or(|value| {
            let value = lines.text[value..end.max(value)].trim_end();
            value.is_empty() || value.starts_with(['|', '>']) || value.ends_with(':')
        });
        if opens { blanks(start, [deeper, end, beside]) } else { blanks(start, [end, deeper, beside]) }
    }
}

fn blanks(start: usize, ends: impl IntoIterator<Item = usize>) -> Vec<Vec<RecoveryEdit>> {
    let mut seen = Vec::new();
    for end in ends {
        if end > start && !seen.contains(&end) {
            seen.push(end);
        }
    }
    seen.into_iter().map(|end| vec![RecoveryEdit::blank(start..end)]).collect()
}

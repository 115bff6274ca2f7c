//! `grep`: finds lines by regular expression, with ripgrep's engine.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write;
use std::io::{self, Read};
use std::path::Path;

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::file_tool::{FileCall, FileTool};
use super::input::{check_pattern_length, lenient_bool, lenient_integer};
use super::tool::Builtin;
use crate::message::ToolError;
use crate::process::CallLimits;
use crate::redaction::Redactor;
use crate::text::pluralize;
use crate::text::truncate::first;
use crate::workspace::walk::{FileWalk, StopWalk, file_filter};

pub(super) const BUILTIN: Builtin = TOOL.builtin("pattern", |_| Ok(Box::new(TOOL)));
const TOOL: FileTool<GrepInput> = FileTool {
    name: "grep",
    description: "Searches files for a regular expression. Excludes binary files, hidden files and files that .gitignore and \
     similar files ignore, unless `path` names a hidden or ignored file or folder.",
    reads_only: true,
    reads_content: true,
    run: search,
};

/// The most lines of a result.
const MAX_LINES: usize = 1000;
/// The longest result, in bytes.
const MAX_BYTES: usize = 48_000;
/// The most lines that are shown before and after a match.
const MAX_CONTEXT_LINES: u64 = 100;
/// The longest part of a line that is shown, in characters.
const LINE_CHARS: usize = 400;
/// The longest line that is searched, in bytes. A file with a longer one isn't searched further.
const MAX_LINE_BYTES: usize = 16 << 20;
/// The most bytes that one call searches.
const MAX_SEARCHED_BYTES: u64 = 4 << 30;
/// The largest compiled expression, and the largest cache for matching, in bytes each.
const REGEX_SIZE_LIMIT: usize = 10 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GrepInput {
    /// Regular expression in Rust's syntax, matched within single lines.
    pattern: String,
    /// Folder or file to search. Default: the workspace.
    #[serde(default)]
    path: Option<String>,
    /// Search only files that match this glob, such as `*.rs` (at any depth), `src/**/*.ts` or `!*.lock` (all others).
    #[serde(default)]
    glob: Option<String>,
    /// `content`: the matching lines as path:number:text. `files`: only the paths. `counts`: path:number of lines. Default:
    /// content.
    #[serde(default, alias = "output_mode")]
    output: Option<OutputMode>,
    /// How many lines to show before and after each matching line, as path-number-text. Default: 0.
    #[serde(default, alias = "-C", alias = "context_lines", deserialize_with = "lenient_integer")]
    context: Option<u64>,
    /// Ignore case. Default: false.
    #[serde(default, alias = "-i", alias = "case_insensitive", deserialize_with = "lenient_bool")]
    ignore_case: Option<bool>,
    /// Lines before each match.
    #[serde(default, rename = "-B", alias = "before_context", deserialize_with = "lenient_integer")]
    #[schemars(skip)]
    before: Option<u64>,
    /// Lines after each match.
    #[serde(default, rename = "-A", alias = "after_context", deserialize_with = "lenient_integer")]
    #[schemars(skip)]
    after: Option<u64>,
    /// The most lines of the result.
    #[serde(default, deserialize_with = "lenient_integer")]
    #[schemars(skip)]
    head_limit: Option<u64>,
    /// Lines have numbers in any case.
    #[serde(default, rename = "-n", alias = "line_numbers")]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    line_numbers: Option<IgnoredAny>,
    /// A pattern matches within a line in any case; one with a line break is refused.
    #[serde(default)]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    multiline: Option<IgnoredAny>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    Content,
    #[serde(alias = "files_with_matches")]
    Files,
    #[serde(alias = "count")]
    Counts,
}

fn search(input: &GrepInput, call: &FileCall) -> Result<String, ToolError> {
    let FileCall { workspace, redactor, limits, .. } = call;
    check_pattern_length("pattern", &input.pattern)?;
    check_pattern_length("glob", input.glob.as_deref().unwrap_or_default())?;
    let mut expression = RegexMatcherBuilder::new();
    expression.case_insensitive(input.ignore_case == Some(true));
    expression.multi_line(true).crlf(true).size_limit(REGEX_SIZE_LIMIT).dfa_size_limit(REGEX_SIZE_LIMIT);
    let matcher = expression.build(&input.pattern).map_err(|error| invalid_pattern(&error.to_string()))?;
    let glob = input.glob.as_deref().filter(|glob| !glob.is_empty());
    let walk = FileWalk {
        workspace,
        stop_reason: &|| limits.stop_reason(),
        base: workspace.resolve_existing(input.path.as_deref().unwrap_or("."))?,
        include_hidden: glob.is_some_and(|glob| glob.starts_with('.') || glob.contains("/.")),
        filter: glob.map(|glob| file_filter(glob, workspace)).transpose()?,
    };
    let mode = input.output.unwrap_or(OutputMode::Content);
    let lines = |given: Option<u64>| match mode {
        OutputMode::Content => given.or(input.context).unwrap_or(0).min(MAX_CONTEXT_LINES) as usize,
        OutputMode::Files | OutputMode::Counts => 0,
    };
    let (before, after) = (lines(input.before), lines(input.after));
    let mut searcher = SearcherBuilder::new()
        .before_context(before)
        .after_context(after)
        .binary_detection(BinaryDetection::quit(b'\0'))
        .line_terminator(grep_matcher::LineTerminator::crlf())
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_LINE_BYTES))
        .build();
    let mut output = GrepOutput {
        mode,
        has_context: before + after > 0,
        text: String::new(),
        lines: 0,
        max_lines: input
            .head_limit
            .filter(|limit| *limit > 0)
            .map_or(MAX_LINES, |limit| limit.min(MAX_LINES as u64) as usize),
        is_full: false,
        unsearched: 0,
    };
    if walk.base.kind() != Some(FileType::Directory) {
        workspace.open_resolved(&walk.base)?;
    }
    let mut files = 0_usize;
    let remaining = Cell::new(MAX_SEARCHED_BYTES);
    let stopped = walk.walk(|entry| {
        if !entry.is_file {
            return Ok(());
        }
        let Some(file) = entry.open() else { return Ok(()) };
        files += 1;
        let mut sink = FileSink {
            path: &entry.path,
            matcher: &matcher,
            output: &mut output,
            redactor,
            limits,
            count: 0,
            has_lines: false,
        };
        let reader = LimitedReader { file, remaining: &remaining, limits };
        let searched = searcher.search_reader(&matcher, reader, &mut sink);
        let count = sink.count;
        output.unsearched += usize::from(searched.is_err());
        output.file(&entry.path, count);
        if output.is_full || remaining.get() == 0 || limits.stop_reason().is_some() { Err(StopWalk) } else { Ok(()) }
    })?;
    let byte_limit = (remaining.get() == 0).then_some("4 GB were searched");
    Ok(output.finish(files, stopped.or(limits.stop_reason()).or(byte_limit)))
}

/// A reader that fails when the call must stop, or when the byte limit is reached.
struct LimitedReader<'a, R> {
    file: R,
    remaining: &'a Cell<u64>,
    limits: &'a CallLimits,
}

impl<R: Read> Read for LimitedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.remaining.get() == 0 || self.limits.stop_reason().is_some() {
            return Err(io::Error::other("the search is over"));
        }
        let read = self.file.read(buffer)?;
        self.remaining.set(self.remaining.get().saturating_sub(read as u64));
        Ok(read)
    }
}

fn invalid_pattern(error: &str) -> ToolError {
    let hint =
        if error.contains("not allowed") { "; patterns match within single lines, without the line break" } else { "" };
    ToolError(format!("invalid pattern: {error}{hint}"))
}

struct GrepOutput {
    mode: OutputMode,
    /// Whether lines around the matches are shown.
    has_context: bool,
    text: String,
    lines: usize,
    max_lines: usize,
    is_full: bool,
    /// How many files couldn't be read, or have a line longer than [`MAX_LINE_BYTES`].
    unsearched: usize,
}

impl GrepOutput {
    fn push(&mut self, line: &str) {
        if self.lines == self.max_lines || self.text.len() + line.len() > MAX_BYTES {
            self.is_full = true;
            return;
        }
        self.lines += 1;
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn file(&mut self, path: &Path, count: u64) {
        if count == 0 {
            return;
        }
        match self.mode {
            OutputMode::Content => {}
            OutputMode::Files => self.push(&path.to_string_lossy()),
            OutputMode::Counts => self.push(&format!("{}:{count}", path.display())),
        }
    }

    fn finish(mut self, files: usize, stopped: Option<&str>) -> String {
        if self.is_full {
            self.text.push_str("(more matches not shown; use a narrower pattern, path or glob)");
        } else if let Some(why) = stopped {
            self.text.push_str(&format!("(stopped: {why}; there may be more matches)"));
        } else if self.lines == 0 {
            self.text = format!(
                "no matches in {} (binary, hidden and ignored files are excluded)",
                pluralize(files as u64, "file")
            );
        } else {
            self.text.pop();
        }
        if self.unsearched > 0 {
            let (count, max_mb) = (self.unsearched, MAX_LINE_BYTES >> 20);
            let _ = write!(
                self.text,
                "\n({} not searched completely: unreadable, or with a line longer than {max_mb} MB)",
                pluralize(count as u64, "file")
            );
        }
        self.text
    }
}

struct FileSink<'a> {
    path: &'a Path,
    matcher: &'a RegexMatcher,
    output: &'a mut GrepOutput,
    redactor: &'a Redactor,
    limits: &'a CallLimits,
    count: u64,
    /// Whether a line of the file is shown.
    has_lines: bool,
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.count += 1;
        match self.output.mode {
            OutputMode::Files => return Ok(false),
            OutputMode::Counts => return Ok(!self.count.is_multiple_of(65_536) || self.limits.stop_reason().is_none()),
            OutputMode::Content => {}
        }
        self.push_line(':', found.line_number(), found.bytes());
        Ok(!self.output.is_full)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.push_line('-', found.line_number(), found.bytes());
        Ok(!self.output.is_full)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.output.push("--");
        Ok(!self.output.is_full)
    }
}

impl FileSink<'_> {
    /// Shows a line; `separator` is `:` for a match and `-` for a line around one.
    fn push_line(&mut self, separator: char, number: Option<u64>, line: &[u8]) {
        // The lines of another file are another group.
        if self.output.has_context && !self.has_lines && self.output.lines > 0 {
            self.output.push("--");
        }
        self.has_lines = true;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let at = |line: &[u8]| self.matcher.find(line).ok().flatten().map_or(0, |found| found.start());
        let number = number.unwrap_or(0);
        let shown = if line.len() <= LINE_CHARS {
            String::from_utf8_lossy(line).into_owned()
        } else {
            // Redacted before truncating, which could leave an unrecognizable part of a secret.
            let text = String::from_utf8_lossy(line);
            match self.redactor.redact(&text) {
                Cow::Borrowed(_) => excerpt_around(line, at(line)),
                Cow::Owned(redacted) => excerpt_around(redacted.as_bytes(), at(redacted.as_bytes())),
            }
        };
        self.output.push(&format!("{}{separator}{number}{separator}{shown}", self.path.display()));
    }
}

/// The part of a long line around the byte offset of a match.
fn excerpt_around(line: &[u8], at: usize) -> String {
    let before = String::from_utf8_lossy(&line[at.saturating_sub(LINE_CHARS)..at]).into_owned();
    let skipped = before.chars().count().saturating_sub(LINE_CHARS / 4);
    let start: String = before.chars().skip(skipped).collect();
    let after = &line[at..line.len().min(at + LINE_CHARS * 4)];
    let text = start + &String::from_utf8_lossy(after);
    let part = first(&text, LINE_CHARS);
    let head = if skipped > 0 || at > LINE_CHARS { "..." } else { "" };
    let tail = if part.len() < text.len() || at + after.len() < line.len() { "..." } else { "" };
    format!("{head}{part}{tail}")
}

#[cfg(test)]
mod tests;

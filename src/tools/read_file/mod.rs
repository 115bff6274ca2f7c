//! `read_file`: lines of a text file, numbered.

use std::fmt::Write;
use std::io::{self, BufRead, BufReader, Read, Seek};

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{lenient_integer, parse, schema};
use super::toolbox::MAX_RESULT_CHARS;
use super::{Builtin, CallLimits, Tool, ToolContext, ToolError, ToolState, Workspace, options, run_blocking_until};
use crate::message::pluralize;
use crate::redaction::Redactor;
use crate::text::truncate::first;
use crate::workspace::atomic_write::MAX_FILE;

pub(super) const BUILTIN: Builtin = Builtin {
    name: "read_file",
    reads_only: true,
    parent_only: false,
    subject_field: Some("path"),
    parse_options: options::none,
    options_schema: || None,
    build: |_| Ok(Box::new(ReadFile)),
};

/// How many lines are shown where the model asks for no number.
const LINES: u64 = 2000;
/// The longest part of a line that is shown, in characters.
const LINE_CHARS: usize = 2000;
/// Room for the remark at the end, in characters.
const REMARK: usize = 300;
/// How many bytes are read to get to the first line that is asked for.
const MAX_SKIPPED_BYTES: u64 = 1 << 30;
/// How many bytes after the last line that is shown are read to count the lines of the file.
const MAX_COUNTED_BYTES: u64 = 64 << 20;
/// In how many bytes from the start a NUL makes a file a binary one.
const SNIFFED: usize = 8192;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFileInput {
    /// Path of the file, from the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// Number of the first line to read, from 1. Default: 1.
    #[serde(default, deserialize_with = "lenient_integer")]
    offset: Option<u64>,
    /// How many lines to read. Default: 2000.
    #[schemars(range(min = 1))]
    #[serde(default, deserialize_with = "lenient_integer")]
    limit: Option<u64>,
}

struct ReadFile;

impl Tool for ReadFile {
    fn name(&self) -> &str {
        "read_file"
    }

    fn description(&self) -> String {
        "Reads a text file. Each line is shown as its number, a tab and its text; the number and the tab are not part of \
         the file. Long files come in parts: go on with `offset`. Very long lines are cut."
            .into()
    }

    fn input_schema(&self) -> Value {
        schema::<ReadFileInput>()
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, scope: &'a ToolContext<'a>) -> BoxFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let input: ReadFileInput = parse(input)?;
            let (workspace, memory, limits) = (scope.workspace.clone(), scope.state.clone(), scope.limits.clone());
            let mask = scope.mask.clone();
            run_blocking_until(scope.limits, move || read(&input, &workspace, &memory, &mask, &limits)).await
        })
    }
}

fn read(
    input: &ReadFileInput,
    workspace: &Workspace,
    memory: &ToolState,
    mask: &Redactor,
    limits: &CallLimits,
) -> Result<String, ToolError> {
    let mut opened = workspace.open_file(&input.path)?;
    let path = opened.path.clone();
    let failed = |error: io::Error| workspace.io_error(&path, &error);
    let shown = path.display();
    let mut start = Vec::new();
    (&mut opened.file).take(SNIFFED as u64).read_to_end(&mut start).map_err(failed)?;
    if let Some(kind) = image_format(&start) {
        return Ok(format!(
            "[`{shown}` is an image ({kind}, {} bytes), and results hold text only: it is left out]",
            opened.size
        ));
    }
    if start.contains(&0) {
        return Err(ToolError(format!("`{shown}` is a binary file of {} bytes", opened.size)));
    }
    let offset = input.offset.unwrap_or(1).max(1);
    let limit = input.limit.unwrap_or(LINES);
    if limit == 0 {
        return Err(ToolError::new("`limit` must be at least 1"));
    }
    let window = if opened.size <= MAX_FILE {
        (&mut opened.file).take(MAX_FILE).read_to_end(&mut start).map_err(failed)?;
        memory.record_file(&path, &start);
        LineRange::read(start.as_slice(), offset, limit, mask, limits)
    } else {
        opened.file.rewind().map_err(failed)?;
        LineRange::read(BufReader::with_capacity(1 << 18, &mut opened.file), offset, limit, mask, limits)
    };
    window.map_err(failed)?.render(&shown.to_string(), offset)
}

/// What kind of image a file that begins like this is.
fn image_format(start: &[u8]) -> Option<&'static str> {
    let is_binary = || start.contains(&0);
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("PNG"),
        [0xff, 0xd8, 0xff, ..] => Some("JPEG"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] if is_binary() => Some("GIF"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("WebP"),
        [b'B', b'M', ..] if is_binary() => Some("BMP"),
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some("TIFF"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f', ..] => Some("AVIF"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i', b'c' | b'x', ..] => Some("HEIC"),
        _ => None,
    }
}

/// The lines that are shown, and what there is beside them.
#[derive(Default)]
struct LineRange {
    text: String,
    chars: usize,
    /// Lines in `text`.
    shown_lines: u64,
    /// Lines in the whole file, as far as it was read.
    lines: u64,
    truncated: bool,
    /// Whether lines end in CRLF, and whether lines end in LF alone; of the whole file, as far as it was read.
    crlf: bool,
    lf: bool,
    /// How many bytes may still be read.
    left: u64,
    /// Why the count of lines ends before the file does.
    stopped: Option<&'static str>,
}

impl LineRange {
    fn read(
        mut reader: impl BufRead,
        offset: u64,
        limit: u64,
        mask: &Redactor,
        limits: &CallLimits,
    ) -> io::Result<Self> {
        let mut window = Self { left: MAX_SKIPPED_BYTES, ..Self::default() };
        let mut line = Vec::new();
        loop {
            let more = window.shown_lines < limit && window.chars < MAX_RESULT_CHARS - REMARK;
            let wanted = window.lines + 1 >= offset && more;
            window.left = if more { window.left } else { window.left.min(MAX_COUNTED_BYTES) };
            let room = if wanted { LINE_CHARS * 4 + 2 + mask.max_match_bytes() } else { 0 };
            line.clear();
            let Some(length) = window.take_line(&mut reader, &mut line, room, limits)? else { return Ok(window) };
            window.lines += 1;
            if wanted {
                window.push_line(&line, length, mask);
            }
            if window.stopped.is_some() {
                return Ok(window);
            }
        }
    }

    fn push_line(&mut self, line: &[u8], length: u64, mask: &Redactor) {
        let whole = line.len() as u64 == length;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Before the cut, which would leave a part of a secret that nothing knows any more; and of a line that was not
        // read to its end only what no secret can go on from.
        let mut stream = mask.stream();
        let mut line = stream.feed(line).into_owned();
        if whole {
            line.extend(stream.finish());
        }
        let line = String::from_utf8_lossy(&line);
        let part = first(&line, LINE_CHARS);
        let mut shown = format!("{:>6}\t{part}", self.lines);
        if part.len() < line.len() || !whole {
            self.truncated = true;
            // Writing to a String can't fail.
            let _ = write!(shown, "[... cut; the line has {length} bytes]");
        }
        shown.push('\n');
        let chars = shown.chars().count();
        if self.chars + chars > MAX_RESULT_CHARS - REMARK && self.shown_lines > 0 {
            // Nothing after it may be shown either.
            self.chars = MAX_RESULT_CHARS;
            return;
        }
        self.chars += chars;
        self.shown_lines += 1;
        self.text.push_str(&shown);
    }

    fn render(self, path: &str, offset: u64) -> Result<String, ToolError> {
        if self.lines == 0 {
            return Ok(format!("`{path}` is empty"));
        }
        if let (0, Some(why)) = (self.shown_lines, self.stopped) {
            return Err(ToolError(format!(
                "`{path}`: line {offset} wasn't reached ({why}); grep finds text in long files"
            )));
        }
        if self.shown_lines == 0 {
            return Err(ToolError(format!(
                "`{path}` has only {}; line {offset} is past its end",
                pluralize(self.lines, "line")
            )));
        }
        let mut remarks = Vec::new();
        let next = offset + self.shown_lines;
        if let Some(why) = self.stopped {
            remarks.push(format!("the file goes on ({why}); go on with offset {next}"));
        } else if next <= self.lines {
            remarks.push(format!("{} more lines; go on with offset {next}", self.lines + 1 - next));
        }
        match (self.crlf, self.lf) {
            (true, true) => remarks.push("mixed line endings: some lines end in CRLF, others in LF".to_owned()),
            (true, false) => remarks.push("lines end in CRLF".to_owned()),
            (false, _) => {}
        }
        let mut text = self.text;
        if remarks.is_empty() {
            text.pop();
        } else {
            let _ = write!(text, "({})", remarks.join("; "));
        }
        Ok(text)
    }

    /// Reads past the next line end. At most `room` bytes of the line go to `line`, its `\n` not among them. Gives the
    /// line's length as far as it was read, or `None` at the end of the file.
    fn take_line(
        &mut self,
        reader: &mut impl BufRead,
        line: &mut Vec<u8>,
        room: usize,
        limits: &CallLimits,
    ) -> io::Result<Option<u64>> {
        let mut length = 0;
        let mut any = false;
        let mut last = 0;
        loop {
            let buffer = match reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok(any.then_some(length));
            }
            any = true;
            let end = line_end(buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            last = part.last().copied().unwrap_or(last);
            self.crlf |= end.is_some() && last == b'\r';
            self.lf |= end.is_some() && last != b'\r';
            line.extend_from_slice(&part[..part.len().min(room - line.len())]);
            length += part.len() as u64;
            let used = part.len() + usize::from(end.is_some());
            reader.consume(used);
            self.left = self.left.saturating_sub(used as u64);
            // Asking for the time at every short line would cost more than reading it.
            if self.left == 0 {
                self.stopped = Some("it is too long to be read whole");
            } else if end.is_none() || self.lines % 4096 == 4095 {
                self.stopped = limits.stop_reason();
            }
            if end.is_some() || self.stopped.is_some() {
                return Ok(Some(length));
            }
        }
    }
}

/// Where the first line of a buffer ends; the standard library's own search is the quickest at hand.
fn line_end(mut buffer: &[u8]) -> Option<usize> {
    let whole = buffer;
    let length = buffer.skip_until(b'\n').ok()?;
    length.checked_sub(1).filter(|end| whole[*end] == b'\n')
}

#[cfg(test)]
mod tests;

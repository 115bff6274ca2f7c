//! `read_file`: returns the numbered lines of a text file.

use std::fmt::Write;
use std::io::{self, BufRead, BufReader, Read, Seek};

use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::{FileCall, FileTool};
use super::input::lenient_integer;
use super::tool::{Builtin, MAX_RESULT_CHARS, ToolOutput};
use crate::attachment::{self, Attachment, MediaType};
use crate::message::ToolError;
use crate::process::CallLimits;
use crate::redaction::Redactor;
use crate::text::bounded::read_up_to;
use crate::text::pluralize;
use crate::text::truncate::first;
use crate::text::utf16::Utf16;
use crate::workspace::atomic_write::MAX_FILE_BYTES;

pub(super) const BUILTIN: Builtin = TOOL.builtin("path", |_| Ok(Box::new(TOOL)));
const TOOL: FileTool<ReadFileInput, ToolOutput> = FileTool {
    name: "read_file",
    description: "Reads a text file. Each line is returned with its line number and a tab, which are not part of the file. Long \
     files are returned in parts; use `offset` to continue. Long lines are truncated. An image (PNG, JPEG, GIF, WebP) or a PDF is \
     shown to you as it is, if you can take it.",
    reads_only: true,
    reads_content: true,
    run: read,
};

/// How many lines are shown by default.
const DEFAULT_LIMIT: u64 = 2000;
/// The longest part of a line that is shown, in characters.
const LINE_CHARS: usize = 2000;
/// Characters reserved for the notes at the end.
const NOTES_CHARS: usize = 300;
/// How many bytes are read to reach the requested lines.
const MAX_SKIPPED_BYTES: u64 = 1 << 30;
/// How many bytes after the last shown line are read to count the remaining lines.
const MAX_COUNTED_BYTES: u64 = 64 << 20;
/// A NUL in this many bytes at the start makes a file binary.
const SNIFFED_BYTES: usize = 8192;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFileInput {
    /// Path of the file, relative to the workspace.
    #[serde(alias = "file_path")]
    path: String,
    /// Number of the first line to read. Default: 1.
    #[serde(default, deserialize_with = "lenient_integer")]
    offset: Option<u64>,
    /// How many lines to read. Default: 2000.
    #[schemars(range(min = 1))]
    #[serde(default, deserialize_with = "lenient_integer")]
    limit: Option<u64>,
}

fn read(input: &ReadFileInput, call: &FileCall) -> Result<ToolOutput, ToolError> {
    let FileCall { workspace, state, redactor, limits, media } = call;
    let mut opened = workspace.open_file(&input.path)?;
    let path = opened.path.clone();
    let failed = |error: io::Error| workspace.io_error(&path, &error);
    let shown = path.display();
    let mut start = read_up_to(&mut opened.file, SNIFFED_BYTES as u64).map_err(failed)?;
    // With `offset` or `limit`, the model wants text.
    let wants_text = input.offset.is_some() || input.limit.is_some();
    if let Some(kind) = MediaType::detect(&start).filter(|kind| media.takes(*kind) && !wants_text) {
        let refused = |why| ToolError(format!("`{shown}` {why}"));
        if opened.size > kind.max_bytes() {
            return Err(refused(attachment::too_large(kind, opened.size)));
        }
        (&mut opened.file).take(attachment::MAX_BYTES).read_to_end(&mut start).map_err(failed)?;
        let attachment = Attachment::new(kind, start).map_err(refused)?;
        let text = format!("[`{shown}`: {}]", attachment.describe());
        return Ok(ToolOutput { text, attachments: vec![attachment], ..ToolOutput::default() });
    }
    if let Some(kind) = image_format(&start) {
        let size = opened.size;
        return Ok(format!("[`{shown}` is an image ({kind}, {size} bytes); only text can be returned]").into());
    }
    let encoding = Utf16::of(&start);
    if start.contains(&0) && encoding.is_none() {
        return Err(ToolError(format!("`{shown}` is a binary file of {} bytes", opened.size)));
    }
    let offset = input.offset.unwrap_or(1).max(1);
    let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 {
        return Err(ToolError::new("`limit` must be at least 1"));
    }
    if let Some(encoding) = encoding {
        if opened.size > MAX_FILE_BYTES {
            let size = opened.size;
            return Err(ToolError(format!(
                "`{shown}` is a file in {encoding} of {size} bytes, which is too large to convert"
            )));
        }
        (&mut opened.file).take(MAX_FILE_BYTES).read_to_end(&mut start).map_err(failed)?;
        state.record_file(&path, &start);
        let text = encoding.decode(&start);
        let window = LineRange::read(text.as_bytes(), offset, limit, redactor, limits).map_err(failed)?;
        let text = window.render(&shown.to_string(), offset)?;
        return Ok(format!("{text}\n({encoding}; edit_file can't change it, and write_file keeps its encoding)").into());
    }
    let window = if opened.size <= MAX_FILE_BYTES {
        (&mut opened.file).take(MAX_FILE_BYTES).read_to_end(&mut start).map_err(failed)?;
        state.record_file(&path, &start);
        LineRange::read(start.as_slice(), offset, limit, redactor, limits)
    } else {
        opened.file.rewind().map_err(failed)?;
        LineRange::read(BufReader::with_capacity(1 << 18, &mut opened.file), offset, limit, redactor, limits)
    };
    window.map_err(failed)?.render(&shown.to_string(), offset).map(Into::into)
}

/// The image format of a file with this beginning.
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

/// The lines that are shown, and what is known about the rest of the file.
#[derive(Default)]
struct LineRange {
    text: String,
    chars: usize,
    /// Lines in `text`.
    shown_lines: u64,
    /// Lines of the file that were read so far.
    lines: u64,
    truncated: bool,
    /// Whether any line read so far ends in CRLF, and whether any ends in LF alone.
    crlf: bool,
    lf: bool,
    /// How many more bytes may be read.
    remaining: u64,
    /// Why reading stopped before the end of the file.
    stopped: Option<&'static str>,
}

impl LineRange {
    fn read(
        mut reader: impl BufRead,
        offset: u64,
        limit: u64,
        redactor: &Redactor,
        limits: &CallLimits,
    ) -> io::Result<Self> {
        let mut window = Self { remaining: MAX_SKIPPED_BYTES, ..Self::default() };
        let mut line = Vec::new();
        loop {
            let has_space = window.shown_lines < limit && window.chars < MAX_RESULT_CHARS - NOTES_CHARS;
            let is_requested = window.lines + 1 >= offset && has_space;
            window.remaining = if has_space { window.remaining } else { window.remaining.min(MAX_COUNTED_BYTES) };
            let max_bytes = if is_requested { LINE_CHARS * 4 + 2 + redactor.max_match_bytes() } else { 0 };
            line.clear();
            let Some(length) = window.take_line(&mut reader, &mut line, max_bytes, limits)? else { return Ok(window) };
            window.lines += 1;
            if is_requested {
                window.push_line(&line, length, redactor);
            }
            if window.stopped.is_some() {
                return Ok(window);
            }
        }
    }

    fn push_line(&mut self, line: &[u8], length: u64, redactor: &Redactor) {
        let is_whole = line.len() as u64 == length;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Redacted before truncating, which could leave an unrecognizable part of a secret. If the line wasn't read to its
        // end, the stream holds back what could be the beginning of a secret.
        let mut stream = redactor.stream();
        let mut line = stream.feed(line).into_owned();
        if is_whole {
            line.extend(stream.finish());
        }
        let line = String::from_utf8_lossy(&line);
        let part = first(&line, LINE_CHARS);
        let mut shown = format!("{:>6}\t{part}", self.lines);
        if part.len() < line.len() || !is_whole {
            self.truncated = true;
            // Writing to a String can't fail.
            let _ = write!(shown, "[... truncated; the line has {length} bytes]");
        }
        shown.push('\n');
        let chars = shown.chars().count();
        if self.chars + chars > MAX_RESULT_CHARS - NOTES_CHARS && self.shown_lines > 0 {
            // No later line may be shown either.
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
                "`{path}`: line {offset} was not reached ({why}); use grep to find text in long files"
            )));
        }
        if self.shown_lines == 0 {
            return Err(ToolError(format!(
                "`{path}` has only {}; line {offset} does not exist",
                pluralize(self.lines, "line")
            )));
        }
        let mut notes = Vec::new();
        let next = offset + self.shown_lines;
        if let Some(why) = self.stopped {
            notes.push(format!("the file continues ({why}); continue with offset {next}"));
        } else if next <= self.lines {
            notes.push(format!("{} more lines; continue with offset {next}", self.lines + 1 - next));
        }
        match (self.crlf, self.lf) {
            (true, true) => notes.push("mixed line endings: CRLF and LF".to_owned()),
            (true, false) => notes.push("CRLF line endings".to_owned()),
            (false, _) => {}
        }
        let mut text = self.text;
        if notes.is_empty() {
            text.pop();
        } else {
            let _ = write!(text, "({})", notes.join("; "));
        }
        Ok(text)
    }

    /// Reads past the next line break. At most `max_bytes` bytes of the line are appended to `line`, without its `\n`. Returns
    /// the length of the part of the line that was read, or `None` at the end of the file.
    fn take_line(
        &mut self,
        reader: &mut impl BufRead,
        line: &mut Vec<u8>,
        max_bytes: usize,
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
            line.extend_from_slice(&part[..part.len().min(max_bytes - line.len())]);
            length += part.len() as u64;
            let used = part.len() + usize::from(end.is_some());
            reader.consume(used);
            self.remaining = self.remaining.saturating_sub(used as u64);
            // Checking the time for every short line would cost more than reading it.
            if self.remaining == 0 {
                self.stopped = Some("it is too long to read completely");
            } else if end.is_none() || self.lines % 4096 == 4095 {
                self.stopped = limits.stop_reason();
            }
            if end.is_some() || self.stopped.is_some() {
                return Ok(Some(length));
            }
        }
    }
}

/// The end of the first line in a buffer, found with the fast search of the standard library.
fn line_end(mut buffer: &[u8]) -> Option<usize> {
    let whole = buffer;
    let length = buffer.skip_until(b'\n').ok()?;
    length.checked_sub(1).filter(|end| whole[*end] == b'\n')
}

#[cfg(test)]
mod tests;

//! Decodes server-sent events from chunks of bytes with arbitrary boundaries.
//!
//! The format is the "event stream" of the HTML standard, section 9.2.6 ("Interpreting an event stream").

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// The maximum size in bytes of one event and of one of its lines, and of a response that isn't streamed.
pub(crate) const MAX_EVENT_BYTES: usize = 8 << 20;

/// The error for a line or an event that exceeds the bound.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Decodes chunks into events. Each byte is examined once.
pub(crate) struct Decoder {
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// The value of the event's `event` field.
    name: Vec<u8>,
    /// The values of the event's `data` fields, each with a line feed after it.
    data: Vec<u8>,
    /// Whether the last byte was a carriage return, so that a line feed after it is ignored.
    after_return: bool,
    /// Whether this is the first line, which may start with a byte order mark.
    first: bool,
    /// The maximum size in bytes of a line and of an event.
    bound: usize,
}

impl Decoder {
    /// A decoder for lines and events of at most `bound` bytes.
    pub(crate) fn new(bound: usize) -> Self {
        Self { line: Vec::new(), name: Vec::new(), data: Vec::new(), after_return: false, first: true, bound }
    }

    /// Takes the next bytes and calls `each` with the events that they complete: name (empty for none) and data.
    /// Invalid UTF-8 is replaced.
    ///
    /// # Errors
    /// [`TooLong`], or the error from `each`. The remaining bytes are lost.
    pub(crate) fn feed<E: From<TooLong>>(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_return) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                self.buffer_line(chunk)?;
                break;
            };
            self.after_return = chunk[end] == b'\r';
            if self.line.is_empty() {
                self.process_line(&chunk[..end], &mut each)?;
            } else {
                self.buffer_line(&chunk[..end])?;
                let mut line = std::mem::take(&mut self.line);
                self.process_line(&line, &mut each)?;
                line.clear();
                self.line = line;
            }
            chunk = &chunk[end + 1..];
        }
        Ok(())
    }

    /// Ends the stream. The standard drops an event without a final blank line, as it may be incomplete. But some
    /// servers end their streams like that, so an event whose data is valid JSON counts.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn finish<E: From<TooLong>>(
        &mut self,
        mut each: impl FnMut(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.process_line(&line, &mut each)?;
        }
        let is_whole = serde_json::from_slice::<IgnoredAny>(&self.data).is_ok();
        if is_whole { self.dispatch(&mut each) } else { Ok(()) }
    }

    fn buffer_line(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + self.data.len() + part.len() > self.bound {
            return Err(TooLong);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn process_line<E: From<TooLong>>(
        &mut self,
        mut line: &[u8],
        each: &mut impl FnMut(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        if std::mem::take(&mut self.first) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(each);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => value.clone_into(&mut self.name),
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            _ => {}
        }
        if self.name.len().max(self.data.len()) > self.bound {
            return Err(TooLong.into());
        }
        Ok(())
    }

    fn dispatch<E>(&mut self, each: &mut impl FnMut(&str, &str) -> Result<(), E>) -> Result<(), E> {
        self.data.pop();
        let outcome =
            if self.data.is_empty() { Ok(()) } else { each(&decode_utf8(&self.name), &decode_utf8(&self.data)) };
        self.name.clear();
        self.data.clear();
        outcome
    }
}

/// Replaces invalid UTF-8. Valid text, which is nearly all, is checked faster than `from_utf8_lossy` does.
fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Whether a supposed stream is actually a JSON document or a page.
pub(crate) fn is_document(start: &[u8]) -> bool {
    match start.trim_ascii_start().first() {
        Some(b'{' | b'[') => !serde_json::from_slice::<IgnoredAny>(start).is_err_and(|error| error.is_eof()),
        first => first == Some(&b'<'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]], bound: usize) -> Result<Vec<(String, String)>, TooLong> {
        let mut decoder = Decoder::new(bound);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk, |name, data| {
                events.push((name.to_owned(), data.to_owned()));
                Ok::<(), TooLong>(())
            })?;
        }
        Ok(events)
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect()
    }

    const MIXED: &str = "\u{feff}: a comment\nevent: one\ndata: 1\n\ndata:first\rdata: second\r\rid: 7\r\nevent: dropped\r\n\r\n\
         retry\ndata\n\nevent:  two\ndata:  ä€😀\nunknown: x\n\ndata: [1]\r\n\r\nevent: cut\ndata: never ends\n";

    #[test]
    fn every_chunking_gives_the_same_events() {
        let expected = pairs(&[("one", "1"), ("", "first\nsecond"), (" two", " ä€😀"), ("", "[1]")]);
        let bytes = MIXED.as_bytes();
        assert_eq!(decode(&[bytes], 1000).unwrap(), expected);
        for size in 1..bytes.len() {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(decode(&chunks, 1000).unwrap(), expected, "in chunks of {size}");
        }
        for cut in 0..=bytes.len() {
            assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]], 1000).unwrap(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn lines_and_events_are_limited_in_length() {
        assert_eq!(decode(&[b"data: 0123456789\n\n"], 11).unwrap(), pairs(&[("", "0123456789")]));
        assert_eq!(decode(&[b"data: 0123456789\n\n"], 10), Err(TooLong));
        assert_eq!(decode(&[b"data: 01", b"23456789"], 10), Err(TooLong));
        assert_eq!(decode(&[b"data: 01\ndata: 23\ndata: 45\ndata: 67\n"], 10), Err(TooLong));
        let long = [b"x".as_slice(); 11];
        assert_eq!(decode(&long, 10), Err(TooLong));
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(decode(&[b"data: a\xffb\n\n"], 100).unwrap(), pairs(&[("", "a\u{fffd}b")]));
    }

    #[test]
    fn an_error_of_the_receiver_stops_the_feed() {
        struct Stop;
        impl From<TooLong> for Stop {
            fn from(_: TooLong) -> Self {
                Self
            }
        }
        let mut count = 0;
        let outcome = Decoder::new(100).feed(b"data: 1\n\ndata: 2\n\n", |_, _| {
            count += 1;
            Err(Stop)
        });
        assert!(outcome.is_err());
        assert_eq!(count, 1);
    }
}

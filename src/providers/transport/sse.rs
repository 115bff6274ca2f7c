//! Server-sent events out of bytes, however the network cut them. Knows no network.
//!
//! The format is the "event stream" of the HTML standard, section 9.2.6 ("Interpreting an event stream").

use serde::de::IgnoredAny;

/// One line or one event is longer than its bound.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Turns chunks into events. Every byte is looked at once.
pub(crate) struct Decoder {
    /// The start of a line whose end hasn't come.
    line: Vec<u8>,
    /// The value of the event's `event` field.
    name: Vec<u8>,
    /// The values of the event's `data` fields, each with a line feed after it.
    data: Vec<u8>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    /// No line has ended yet, so a byte order mark may stand before the first.
    first: bool,
    /// Greatest size in bytes of a line and of an event.
    bound: usize,
}

impl Decoder {
    /// A decoder that takes lines and events of at most `bound` bytes.
    pub(crate) fn new(bound: usize) -> Self {
        Self { line: Vec::new(), name: Vec::new(), data: Vec::new(), after_return: false, first: true, bound }
    }

    /// Takes the next bytes and hands on the events that they complete: name (empty for none) and data. Bytes that
    /// aren't UTF-8 are replaced.
    ///
    /// # Errors
    /// [`TooLong`], or what `each` returned; the rest of the bytes is lost then.
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
            let Some(end) = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
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

    /// Nothing follows. The standard drops an event whose blank line never comes, for it may have been cut; one whose data is
    /// JSON to its end was not, and some servers end like that.
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
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
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
        let outcome = if self.data.is_empty() {
            Ok(())
        } else {
            each(&String::from_utf8_lossy(&self.name), &String::from_utf8_lossy(&self.data))
        };
        self.name.clear();
        self.data.clear();
        outcome
    }
}

/// Whether the start of what is called a stream is JSON to its end, or a page, and no event.
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
    fn every_way_of_cutting_gives_the_same_events() {
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
    fn lines_and_events_are_bounded() {
        assert_eq!(decode(&[b"data: 0123456789\n\n"], 11).unwrap(), pairs(&[("", "0123456789")]));
        assert_eq!(decode(&[b"data: 0123456789\n\n"], 10), Err(TooLong));
        assert_eq!(decode(&[b"data: 01", b"23456789"], 10), Err(TooLong));
        assert_eq!(decode(&[b"data: 01\ndata: 23\ndata: 45\ndata: 67\n"], 10), Err(TooLong));
        let long = [b"x".as_slice(); 11];
        assert_eq!(decode(&long, 10), Err(TooLong));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(decode(&[b"data: a\xffb\n\n"], 100).unwrap(), pairs(&[("", "a\u{fffd}b")]));
    }

    #[test]
    fn what_the_receiver_says_stops_the_feed() {
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

//! The events of a server that speaks streamable HTTP, from bytes with arbitrary boundaries. Invalid UTF-8 is replaced.

use std::collections::VecDeque;
use std::io;

use futures_util::{StreamExt, TryStream, stream};
use reqwest::Response;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::SseError;

use super::stream_bounds::MAX_MESSAGE_BYTES;

/// An event as the SDK has it.
type Event = <BoxedSseResponse as TryStream>::Ok;

/// The events in the body of a response.
pub(super) fn events(response: Response) -> BoxedSseResponse {
    let state = (response.bytes_stream().boxed(), EventReader::default(), VecDeque::new());
    let events = stream::unfold(state, |(mut bytes, mut reader, mut ready)| async move {
        loop {
            if let Some(event) = ready.pop_front() {
                return Some((Ok(event), (bytes, reader, ready)));
            }
            let error = match bytes.next().await {
                // Some servers end their streams without the blank line that ends an event.
                None if reader.is_at_start() => return None,
                None => match reader.feed(b"\n\n", &mut ready) {
                    Ok(()) => continue,
                    Err(error) => SseError::Body(error.into()),
                },
                Some(Ok(chunk)) => match reader.feed(&chunk, &mut ready) {
                    Ok(()) => continue,
                    Err(error) => SseError::Body(error.into()),
                },
                Some(Err(error)) => SseError::Body(error.into()),
            };
            // A stream that has failed has ended.
            return Some((Err(error), (stream::empty().boxed(), EventReader::default(), VecDeque::new())));
        }
    });
    events.boxed()
}

/// Decodes an event stream (HTML standard, section 9.2.6).
#[derive(Default)]
struct EventReader {
    /// The start of a line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return, so that a line feed after it is ignored.
    after_return: bool,
    event: Event,
    /// The bytes of the event so far.
    size: usize,
}

impl EventReader {
    /// Whether nothing of an event was read.
    fn is_at_start(&self) -> bool {
        self.line.is_empty() && self.event == Event::default()
    }

    fn feed(&mut self, mut chunk: &[u8], ready: &mut VecDeque<Event>) -> io::Result<()> {
        while let Some(first) = chunk.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let length = end.unwrap_or(chunk.len());
            self.size += length;
            if self.size > MAX_MESSAGE_BYTES {
                return Err(io::Error::other("it sent a message of more than 16 MiB"));
            }
            self.line.extend_from_slice(&chunk[..length]);
            let Some(end) = end else { break };
            self.after_return = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.end_line(String::from_utf8_lossy(&line).trim_start_matches('\u{feff}'), ready);
        }
        Ok(())
    }

    fn end_line(&mut self, line: &str, ready: &mut VecDeque<Event>) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            self.size = 0;
            if event != Event::default() {
                ready.push_back(event);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            "event" => self.event.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            // A comment, or a field that isn't known. Its bytes don't count for the event.
            _ => self.size = self.size.saturating_sub(line.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_they_are_split() {
        let text = b"\xef\xbb\xbf: hello\nid: 1\nretry: 20\ndata:\n\nevent: message\r\ndata: caf\xe9\r\ndata: two\r\n\r\nother: 1\n\ndata: cut";
        for size in 1..text.len() {
            let (mut reader, mut ready) = (EventReader::default(), VecDeque::new());
            text.chunks(size).for_each(|chunk| reader.feed(chunk, &mut ready).unwrap());
            assert_eq!(ready.len(), 2, "{size}: {ready:?}");
            assert_eq!(
                (ready[0].id.as_deref(), ready[0].retry, ready[0].data.as_deref()),
                (Some("1"), Some(20), Some(""))
            );
            assert_eq!(ready[1].data.as_deref(), Some("caf\u{fffd}\ntwo"));
            reader.feed(b"\n\n", &mut ready).unwrap();
            assert!(reader.is_at_start() && ready[2].data.as_deref() == Some("cut"));
        }
        let (mut reader, mut ready) = (EventReader::default(), VecDeque::new());
        let chunk = vec![b'x'; 1 << 20];
        assert!((0..20).any(|_| reader.feed(&chunk, &mut ready).is_err()));
    }
}

//! Puts the events of a journal into the order in which people read them: calls as the model asked for them.

use std::collections::VecDeque;

use super::{Event, JournalEntry};

/// Puts the events of one journal into the order of the calls in the replies.
///
/// Parallel calls end in any order, and the journal has their ends as they happened. Everything that is shown uses this
/// order, so that two equal runs look the same. The events of a call stay together, and nothing moves past an event that
/// belongs to no call.
#[derive(Debug, Default)]
pub struct CallOrder {
    /// The calls of the last reply, in its order.
    calls: Vec<PendingCall>,
    /// The first call that has no result yet.
    next: usize,
    ready: VecDeque<JournalEntry>,
}

#[derive(Debug, Default)]
struct PendingCall {
    id: String,
    /// The subagent that answers it.
    child: Option<String>,
    /// How many results are still to come: several if calls share the id.
    open: usize,
    /// Its events, until all calls before it have their results.
    events: Vec<JournalEntry>,
}

impl CallOrder {
    /// Takes the next event of the journal.
    pub fn push(&mut self, entry: JournalEntry) {
        let call = match &entry.event {
            Event::CallStarted(started) => {
                let call = self.find(&started.call_id);
                if let (Some(child), Some(call)) = (&started.child, call) {
                    self.calls[call].child = Some(child.clone());
                }
                call
            }
            Event::CallFinished(finished) => self.find(&finished.result.call_id),
            Event::AgentFinished(finished) => {
                self.calls.iter().position(|call| call.child.as_ref() == Some(&finished.id))
            }
            _ => None,
        };
        let Some(number) = call else {
            self.flush();
            self.begin(&entry);
            return self.ready.push_back(entry);
        };
        let is_result = matches!(entry.event, Event::CallFinished(_));
        let call = &mut self.calls[number];
        call.events.push(entry);
        call.open -= usize::from(is_result && call.open > 0);
        while let Some(call) = self.calls.get_mut(self.next).filter(|call| call.open == 0) {
            self.ready.extend(call.events.drain(..));
            self.next += 1;
        }
        if number < self.next {
            self.ready.extend(self.calls[number].events.drain(..));
        }
    }

    /// The next event, if its position is known.
    pub fn pop(&mut self) -> Option<JournalEntry> {
        self.ready.pop_front()
    }

    /// Releases all events because no more come for now. Calls without a result keep their positions.
    pub fn flush(&mut self) {
        self.ready.extend(self.calls.iter_mut().flat_map(|call| call.events.drain(..)));
    }

    fn begin(&mut self, entry: &JournalEntry) {
        let Event::ReplyReceived(replied) = &entry.event else { return };
        *self = Self { ready: std::mem::take(&mut self.ready), ..Self::default() };
        for call in replied.reply.tool_calls() {
            match self.find(&call.id) {
                Some(number) => self.calls[number].open += 1,
                None => self.calls.push(PendingCall { id: call.id.clone(), open: 1, ..PendingCall::default() }),
            }
        }
    }

    fn find(&self, id: &str) -> Option<usize> {
        self.calls.iter().position(|call| call.id == id)
    }
}

/// A whole journal in reading order.
pub fn in_call_order(entries: impl Iterator<Item = JournalEntry>) -> impl Iterator<Item = JournalEntry> {
    let mut entries = entries.fuse();
    let mut order = CallOrder::default();
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = order.pop() {
                return Some(entry);
            }
            match entries.next() {
                Some(entry) => order.push(entry),
                None => {
                    order.flush();
                    return order.pop();
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{CallFinished, CallStarted, NoteSent, PARENT, ReplyReceived};
    use super::*;
    use crate::message::{Block, BlockContent, Reply, StopReason, ToolCall, ToolResult, Usage};

    fn replied(ids: &[&str]) -> Event {
        let call = |id: &&str| {
            let input = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
            Block::from(BlockContent::Call(ToolCall {
                id: (*id).to_owned(),
                tool: "grep".into(),
                input: input.into(),
                input_error: None,
            }))
        };
        let blocks = ids.iter().map(call).collect();
        let reply = Reply { blocks, stop: StopReason::ToolUse, usage: Usage::default(), model: None, request_id: None };
        ReplyReceived { turn: 1, reply, duration_ms: 1 }.into()
    }

    fn started(id: &str) -> Event {
        CallStarted { call_id: id.into(), tool: "grep".into(), subject: String::new(), child: None }.into()
    }

    fn finished(id: &str) -> Event {
        let result = ToolResult { call_id: id.into(), text: String::new(), is_error: false };
        CallFinished { tool: "grep".into(), result, duration_ms: 1, file_version: None, no_result: None, merged: None }
            .into()
    }

    fn told() -> Event {
        NoteSent { text: "go on".into() }.into()
    }

    /// The events of a journal, a word each: `+a` where call `a` starts, `-a` where it ends.
    fn read(events: Vec<Event>) -> String {
        let entry = |event| JournalEntry { seq: 1, at: Timestamp::UNIX_EPOCH, agent: PARENT.into(), event };
        let word = |entry: JournalEntry| match entry.event {
            Event::CallStarted(started) => format!("+{}", started.call_id),
            Event::CallFinished(finished) => format!("-{}", finished.result.call_id),
            other => other.kind().to_owned(),
        };
        in_call_order(events.into_iter().map(entry)).map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn calls_come_in_the_order_of_the_reply() {
        let begun = |ids: &[&str]| ids.iter().map(|id| started(id)).collect::<Vec<_>>();
        let all = |ids: &[&str], ends: &[&str]| {
            let ends = ends.iter().map(|id| finished(id));
            [vec![replied(ids)], begun(ids), ends.collect(), vec![told()]].concat()
        };
        let expected = "reply_received +a -a +b -b +c -c note_sent";
        for ends in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]] {
            assert_eq!(read(all(&["a", "b", "c"], &ends)), expected, "{ends:?}");
        }
        let twice = [all(&["a", "b"], &["b", "a"]), all(&["b", "a"], &["a", "b"])].concat();
        assert_eq!(read(twice), "reply_received +a -a +b -b note_sent reply_received +b -b +a -a note_sent");
        assert_eq!(
            read(all(&["a", "a", "b"], &["b", "a", "a"])),
            "reply_received +a +a -a -a +b -b note_sent",
            "one id twice"
        );
    }

    #[test]
    fn calls_without_results_keep_their_places() {
        let events = vec![replied(&["a", "b"]), started("a"), started("b"), finished("b")];
        assert_eq!(read(events.clone()), "reply_received +a +b -b");
        let more = [events.clone(), vec![told(), finished("a"), told()]].concat();
        assert_eq!(read(more), "reply_received +a +b -b note_sent -a note_sent", "it goes on later");
        assert_eq!(read(vec![finished("x"), told(), started("y")]), "-x note_sent +y", "what no reply asked for");
    }
}

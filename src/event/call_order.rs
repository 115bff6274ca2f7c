//! The order in which people read a journal: calls as the model asked for them, not as they ended.

use std::collections::{HashMap, VecDeque};

use super::{Entry, Event};

/// Puts the events of one journal into the order in which their calls were asked for.
///
/// Calls that run side by side end in any order, and a journal holds their ends as they happened. Everything that is
/// shown takes its events from here, so that two equal runs read the same. What belongs to a call stays together, and
/// nothing moves past an event that belongs to no call.
#[derive(Debug, Default)]
pub struct CallOrder {
    /// The calls of the last reply, in its order.
    calls: Vec<Call>,
    /// Their places in `calls`, by their ids. Calls that share an id share a place.
    by_id: HashMap<String, usize>,
    /// The same by the subagents that answer them.
    by_child: HashMap<String, usize>,
    /// The first call that has no result yet.
    next: usize,
    ready: VecDeque<Entry>,
}

#[derive(Debug, Default)]
struct Call {
    /// How many results are still to come.
    open: usize,
    /// Its events, until all calls before it have their results.
    held: Vec<Entry>,
}

impl CallOrder {
    /// Takes the next event of the journal.
    pub fn push(&mut self, entry: Entry) {
        let call = match &entry.event {
            Event::CallStarted(started) => {
                let call = self.by_id.get(&started.call_id).copied();
                if let (Some(child), Some(call)) = (&started.child, call) {
                    self.by_child.insert(child.clone(), call);
                }
                call
            }
            Event::CallFinished(finished) => self.by_id.get(&finished.result.call_id).copied(),
            Event::AgentFinished(finished) => self.by_child.get(&finished.id).copied(),
            _ => None,
        };
        let Some(number) = call else {
            self.end();
            self.begin(&entry);
            return self.ready.push_back(entry);
        };
        let is_result = matches!(entry.event, Event::CallFinished(_));
        let call = &mut self.calls[number];
        call.held.push(entry);
        call.open -= usize::from(is_result && call.open > 0);
        while let Some(call) = self.calls.get_mut(self.next).filter(|call| call.open == 0) {
            self.ready.extend(call.held.drain(..));
            self.next += 1;
        }
        if number < self.next {
            self.ready.extend(self.calls[number].held.drain(..));
        }
    }

    /// The next event in the order in which it is read, as far as that is known.
    pub fn pop(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    /// Nothing more comes for now: calls without a result keep their places.
    pub fn end(&mut self) {
        self.ready.extend(self.calls.iter_mut().flat_map(|call| call.held.drain(..)));
    }

    fn begin(&mut self, entry: &Entry) {
        let Event::Replied(replied) = &entry.event else { return };
        *self = Self { ready: std::mem::take(&mut self.ready), ..Self::default() };
        for call in replied.reply.calls() {
            let number = *self.by_id.entry(call.id.clone()).or_insert_with(|| {
                self.calls.push(Call::default());
                self.calls.len() - 1
            });
            self.calls[number].open += 1;
        }
    }
}

/// A whole journal in the order in which it is read.
pub fn in_call_order(entries: impl Iterator<Item = Entry>) -> impl Iterator<Item = Entry> {
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
                    order.end();
                    return order.pop();
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::{CallFinished, CallStarted, PARENT, Replied, Told};
    use super::*;
    use crate::message::{Block, Reply, Stop, ToolCall, ToolResult, Usage, View};

    fn replied(ids: &[&str]) -> Event {
        let call = |id: &&str| {
            let input = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
            Block::from(View::Call(ToolCall {
                id: (*id).to_owned(),
                tool: "grep".into(),
                input: input.into(),
                broken: None,
            }))
        };
        let blocks = ids.iter().map(call).collect();
        let reply = Reply { blocks, stop: Stop::ToolUse, usage: Usage::default(), model: None, request_id: None };
        Replied { turn: 1, reply, duration_ms: 1 }.into()
    }

    fn started(id: &str) -> Event {
        CallStarted { call_id: id.into(), tool: "grep".into(), about: String::new(), child: None }.into()
    }

    fn finished(id: &str) -> Event {
        let result = ToolResult { call_id: id.into(), text: String::new(), is_error: false };
        CallFinished { tool: "grep".into(), result, duration_ms: 1, seen: None }.into()
    }

    fn told() -> Event {
        Told { text: "go on".into() }.into()
    }

    /// What is read of a journal, an event a word: `+a` where call `a` starts, `-a` where it ends.
    fn read(events: Vec<Event>) -> String {
        let entry = |event| Entry { seq: 1, at: Timestamp::UNIX_EPOCH, agent: PARENT.into(), event };
        let word = |entry: Entry| match entry.event {
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
        let expected = "replied +a -a +b -b +c -c told";
        for ends in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]] {
            assert_eq!(read(all(&["a", "b", "c"], &ends)), expected, "{ends:?}");
        }
        let twice = [all(&["a", "b"], &["b", "a"]), all(&["b", "a"], &["a", "b"])].concat();
        assert_eq!(read(twice), "replied +a -a +b -b told replied +b -b +a -a told");
        assert_eq!(read(all(&["a", "a", "b"], &["b", "a", "a"])), "replied +a +a -a -a +b -b told", "one id twice");
    }

    #[test]
    fn what_has_no_result_keeps_its_place() {
        let events = vec![replied(&["a", "b"]), started("a"), started("b"), finished("b")];
        assert_eq!(read(events.clone()), "replied +a +b -b");
        let more = [events.clone(), vec![told(), finished("a"), told()]].concat();
        assert_eq!(read(more), "replied +a +b -b told -a told", "it goes on later");
        assert_eq!(read(vec![finished("x"), told(), started("y")]), "-x told +y", "what no reply asked for");
    }
}

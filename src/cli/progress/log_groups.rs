//! The lines of subagents in a log of GitHub Actions: a group for each, which the reader can unfold.
//!
//! Groups can't nest or interleave, so the lines of a subagent are kept until it ends.

use std::collections::VecDeque;

use indexmap::IndexMap;

use crate::cli::output::printable;
use crate::text::{pluralize, truncate};

/// The most lines that are kept of a subagent. The record has all.
const MAX_LINES: usize = 1_000;
/// The most characters of the title of a group.
const MAX_TITLE_CHARS: usize = 200;

/// The lines of the subagents that run.
#[derive(Debug, Default)]
pub(super) struct LogGroups {
    groups: IndexMap<String, Group>,
}

#[derive(Debug, Default)]
struct Group {
    lines: VecDeque<String>,
    left_out: u64,
}

impl LogGroups {
    /// Keeps a line of a subagent.
    pub(super) fn add(&mut self, agent: &str, line: String) {
        let group = self.groups.entry(agent.to_owned()).or_default();
        if group.lines.len() == MAX_LINES {
            group.lines.pop_front();
            group.left_out += 1;
        }
        group.lines.push_back(line);
    }

    /// The whole text of a subagent's group, with its commands. The lines of it are gone then.
    pub(super) fn take(&mut self, agent: &str, title: &str) -> String {
        let group = self.groups.shift_remove(agent).unwrap_or_default();
        let title = truncate::ellipsize(&printable(title), MAX_TITLE_CHARS).replace('%', "%25");
        let mut text = format!("::group::{title}\n");
        if group.left_out > 0 {
            text += &format!("{agent:<14} ({} left out; the transcript has all)\n", pluralize(group.left_out, "line"));
        }
        for line in group.lines {
            text += &line;
            text.push('\n');
        }
        text + "::endgroup::\n"
    }

    /// The subagents with lines that weren't printed.
    pub(super) fn open(&self) -> Vec<String> {
        self.groups.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_bounded_and_its_title_is_one_line() {
        let mut groups = LogGroups::default();
        (0..MAX_LINES + 5).for_each(|number| groups.add("a-1", format!("line {number}")));
        groups.add("b-1", "other".to_owned());
        let text = groups.take("a-1", "a-1: 100%0A\n::error::x");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "::group::a-1: 100%250A ::error::x",
                "a-1            (5 lines left out; the transcript has all)",
                "line 5"
            ]
        );
        assert_eq!((lines.len(), lines.last()), (MAX_LINES + 3, Some(&"::endgroup::")));
        assert_eq!(groups.open(), ["b-1"]);
    }
}

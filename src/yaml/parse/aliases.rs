//! Anchors, and the aliases that stand for them.

use std::ops::Range;

use super::{Content, FLATTEN, MAX_DEPTH, MAX_EXPANDED, TreeBuilder, excerpt};

/// What to do where an alias has no anchor.
pub(super) const ANCHOR: &str =
    "put the anchor `&NAME` before the value that it stands for, or quote a string that starts with `*`";

/// A node that aliases can stand for.
pub(super) enum Anchor {
    /// Its list or mapping isn't closed yet.
    Open,
    Closed {
        index: u32,
        height: usize,
        weight: u64,
    },
}

impl TreeBuilder<'_> {
    pub(super) fn alias(&mut self, anchor: usize, span: Range<usize>) {
        let name = excerpt(&self.text[span.clone()]);
        match self.anchors.get(&anchor) {
            Some(Anchor::Closed { index, height, weight }) => {
                let (target, height, weight) = (*index, *height, *weight);
                if self.frames.len() + height > MAX_DEPTH {
                    let message = format!("the alias `{name}` nests more than {MAX_DEPTH} levels deep");
                    self.report("too-deep", span.clone(), message, FLATTEN);
                    self.push_invalid(span);
                } else if self.weight + weight > MAX_EXPANDED {
                    let message = format!("with the alias `{name}` the file stands for too many values");
                    self.report("too-large", span.clone(), message, "use fewer aliases of aliases");
                    self.push_invalid(span);
                } else {
                    self.weight += weight;
                    let index = self.push(span, Content::Alias(target));
                    self.attach(index, height);
                }
            }
            Some(Anchor::Open) => {
                let message = format!("the alias `{name}` stands for something that it is part of");
                self.report(
                    "cyclic-alias",
                    span.clone(),
                    message,
                    "write the value out, or move the anchor to a part without it",
                );
                self.push_invalid(span);
            }
            None => {
                self.report("unknown-anchor", span.clone(), format!("no anchor for the alias `{name}`"), ANCHOR);
                self.push_invalid(span);
            }
        }
    }
}

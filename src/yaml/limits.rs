//! Bounds on hostile files, and the options of the parser that enforce some of them.

use std::ops::Range;

use granit_parser::Options;

/// The greatest size of a file in bytes: 4 MiB.
pub const MAX_BYTES: usize = 4 << 20;
/// How deep lists and mappings may be nested, aliases followed.
pub(super) const MAX_DEPTH: usize = 64;
/// How many nodes a file may have.
pub(super) const MAX_NODES: usize = 250_000;
/// How many nodes (and 32-byte pieces of text) a file may have with aliases followed.
pub(super) const MAX_EXPANDED: u64 = 1_000_000;
/// How many findings are shown; one more counts the rest.
pub(super) const MAX_FINDINGS: usize = 100;

/// The help for a file that is nested too deep.
pub(super) const FLATTEN: &str = "use fewer levels of lists and mappings";

/// The options of the parser.
pub(super) fn parser_options() -> Options {
    granit_parser::options! {
        emit_unresolved_aliases: true,
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    }
}

/// A range moved into the text and to character boundaries.
pub(super) fn clamp_range(text: &str, range: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(range.start);
    start..text.floor_char_boundary(range.end).max(start)
}

//! What the bodies of several APIs are written with.

use bytes::Bytes;

/// Whether a text says nothing, which most APIs refuse.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// A whole body: what stands before the list of what was said, the list with commas, and the ends of both.
pub(crate) fn join_body<'a>(before: [Bytes; 2], list: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let mut pieces = Vec::from(before);
    for (at, json) in list.enumerate() {
        if at > 0 {
            pieces.push(Bytes::from_static(b","));
        }
        pieces.push(json.clone());
    }
    pieces.push(Bytes::from_static(b"]}"));
    pieces
}

//! JSON pointers, and the places that they lead to.

use crate::diagnostic::SourceSpan;
use crate::yaml::{Node, NodeKind};

/// The parts of a pointer, unescaped.
pub(super) fn reference_tokens(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// The part of a document at a pointer, or the innermost existing part around it.
pub(super) fn resolve_pointer(root: &Node, pointer: &str) -> Node {
    let mut node = root.clone();
    for part in reference_tokens(pointer) {
        let next = match node.kind() {
            NodeKind::List => part.parse().ok().and_then(|number| node.items().nth(number)),
            _ => node.get(&part),
        };
        match next {
            Some(next) => node = next,
            None => break,
        }
    }
    node
}

/// The key of a part's entry.
pub(super) fn key_node(mapping: &Node, name: &str) -> Option<Node> {
    mapping.entries().find(|(key, _)| key.text() == Some(name)).map(|(key, _)| key)
}

/// The place to report for a part: of a mapping or list, its key or first entry, not its whole text.
pub(super) fn report_place(node: &Node) -> SourceSpan {
    match node.kind() {
        NodeKind::Mapping | NodeKind::List => node.place_for_missing(),
        _ => node.place(),
    }
}

/// The pointer of a child.
pub(super) fn child_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Encodes a pointer as a URI fragment.
pub(super) fn uri_fragment(pointer: &str) -> String {
    let mut out = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

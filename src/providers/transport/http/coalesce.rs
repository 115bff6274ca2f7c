//! A request's body in fewer pieces.

use bytes::{Bytes, BytesMut};

/// The same bytes in fewer pieces: each piece costs a few allocations and a place in a system call on its way through
/// the HTTP library, which for small ones is more than copying them.
pub(super) fn coalesce(pieces: Vec<Bytes>) -> Vec<Bytes> {
    const SMALL: usize = 4 << 10;
    let mut fewer = Vec::new();
    let mut run = BytesMut::new();
    for piece in pieces {
        if piece.len() <= SMALL {
            run.extend_from_slice(&piece);
            continue;
        }
        if !run.is_empty() {
            fewer.push(run.split().freeze());
        }
        fewer.push(piece);
    }
    if !run.is_empty() {
        fewer.push(run.freeze());
    }
    fewer
}

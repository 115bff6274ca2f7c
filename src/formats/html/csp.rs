//! Hashes for the Content-Security-Policy of our pages, which allows only their own style and script.

use sha2::{Digest, Sha256};

/// The SHA-256 of an inline script or style in base64, as a Content-Security-Policy has it.
pub(in crate::formats) fn csp_hash(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(text);
    let mut base64 = String::new();
    for group in digest.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = char::from(ALPHABET[(bits >> (18 - 6 * place) & 0x3f) as usize]);
            base64.push(if place <= group.len() { letter } else { '=' });
        }
    }
    base64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_standard() {
        assert_eq!(csp_hash("alert('Hello, world.');"), "qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
    }
}

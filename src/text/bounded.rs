//! Reads of files whose size others decide.

use std::io::{self, Read};

/// Reads to the end; `None` if there are more than `max` bytes.
pub(crate) fn read_at_most(reader: impl Read, max: u64) -> io::Result<Option<Vec<u8>>> {
    let bytes = read_up_to(reader, max.saturating_add(1))?;
    Ok((bytes.len() as u64 <= max).then_some(bytes))
}

/// Reads `max` bytes, or less if there aren't as many.
pub(crate) fn read_up_to(reader: impl Read, max: u64) -> io::Result<Vec<u8>> {
    read_expected(reader, 0, max)
}

/// The same where about this many bytes are expected: one large read instead of many small ones.
pub(crate) fn read_expected(reader: impl Read, expected: u64, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if expected > 0 {
        bytes.reserve_exact(usize::try_from(expected.min(max)).unwrap_or_default() + 1);
    }
    reader.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::read_at_most;

    #[test]
    fn what_is_longer_is_not_read() {
        let read = |text: &str, max| read_at_most(text.as_bytes(), max).unwrap();
        assert_eq!(read("abc", 3).as_deref(), Some(&b"abc"[..]));
        assert_eq!((read("abcd", 3), read("", 0), read("a", u64::MAX)), (None, Some(vec![]), Some(b"a".to_vec())));
    }
}

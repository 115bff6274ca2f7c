//! Text in UTF-16, which some programs on Windows write.

use std::fmt;

/// The byte order of a text in UTF-16 that begins with a byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Utf16 {
    LittleEndian,
    BigEndian,
}

impl Utf16 {
    /// The encoding of a file with this beginning, if it is UTF-16. UTF-32 isn't.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0xff, 0xfe, 0, 0, ..] => None,
            [0xff, 0xfe, ..] => Some(Self::LittleEndian),
            [0xfe, 0xff, ..] => Some(Self::BigEndian),
            _ => None,
        }
    }

    /// The text without the byte order mark. What isn't valid is replaced.
    pub(crate) fn decode(self, bytes: &[u8]) -> String {
        let units = bytes.get(2..).unwrap_or_default().chunks(2).map(|unit| match (self, unit) {
            (Self::LittleEndian, [low, high]) | (Self::BigEndian, [high, low]) => u16::from_be_bytes([*high, *low]),
            _ => 0xfffd,
        });
        char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }
}

impl fmt::Display for Utf16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LittleEndian => "UTF-16, little-endian",
            Self::BigEndian => "UTF-16, big-endian",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_are_read() {
        let units: Vec<u16> = "\u{feff}a\u{e9}\u{1f600}\n".encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for (bytes, order) in [(&little, Utf16::LittleEndian), (&big, Utf16::BigEndian)] {
            assert_eq!(Utf16::of(bytes), Some(order));
            assert_eq!(order.decode(bytes), "a\u{e9}\u{1f600}\n");
            assert_eq!(order.decode(&bytes[..5]), "a\u{fffd}");
        }
        for other in [b"".as_slice(), b"\xff", b"\xff\xfe\0\0a", b"\xef\xbb\xbfa", b"a\0b\0"] {
            assert_eq!(Utf16::of(other), None, "{other:?}");
        }
    }
}

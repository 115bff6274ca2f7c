//! Character references of HTML, as Markdown and as browsers read them.

/// References whose character matters to the rules: the ASCII punctuation, white space, and characters that nobody sees. A
/// Markdown parser decodes all others.
const NAMED: &[(&str, char)] = &[
    ("Tab", '\t'),
    ("NewLine", '\n'),
    ("nbsp", '\u{a0}'),
    ("NonBreakingSpace", '\u{a0}'),
    ("excl", '!'),
    ("quot", '"'),
    ("QUOT", '"'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("amp", '&'),
    ("AMP", '&'),
    ("apos", '\''),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("midast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("lt", '<'),
    ("LT", '<'),
    ("equals", '='),
    ("gt", '>'),
    ("GT", '>'),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("lbrack", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("rbrack", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("UnderBar", '_'),
    ("grave", '`'),
    ("DiacriticalGrave", '`'),
    ("lcub", '{'),
    ("lbrace", '{'),
    ("verbar", '|'),
    ("vert", '|'),
    ("VerticalLine", '|'),
    ("rcub", '}'),
    ("rbrace", '}'),
    ("shy", '\u{ad}'),
    ("ZeroWidthSpace", '\u{200b}'),
    ("NegativeVeryThinSpace", '\u{200b}'),
    ("NegativeThinSpace", '\u{200b}'),
    ("NegativeMediumSpace", '\u{200b}'),
    ("NegativeThickSpace", '\u{200b}'),
    ("zwnj", '\u{200c}'),
    ("zwj", '\u{200d}'),
    ("lrm", '\u{200e}'),
    ("rlm", '\u{200f}'),
    ("NoBreak", '\u{2060}'),
    ("ApplyFunction", '\u{2061}'),
    ("af", '\u{2061}'),
    ("InvisibleTimes", '\u{2062}'),
    ("it", '\u{2062}'),
    ("InvisibleComma", '\u{2063}'),
    ("ic", '\u{2063}'),
];

/// The references of [`NAMED`] that browsers read without a semicolon, too.
const WITHOUT_SEMICOLON: &[&str] = &["nbsp", "quot", "QUOT", "amp", "AMP", "lt", "LT", "gt", "GT", "shy"];

/// The longest name of [`NAMED`].
const MAX_NAME: usize = 24;

/// The character that the reference at the beginning of a text stands for, and its length in bytes. Numbers may lack their
/// semicolon, as browsers accept it.
pub(super) fn decode(text: &str) -> Option<(char, usize)> {
    let rest = text.strip_prefix('&')?;
    if let Some(number) = rest.strip_prefix('#') {
        let (digits, radix) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16),
            None => (number, 10),
        };
        let length = digits.find(|digit: char| !digit.is_digit(radix)).unwrap_or(digits.len());
        let digits_begin = text.len() - digits.len();
        let value = digits[..length]
            .chars()
            .try_fold(0u32, |value, digit| value.checked_mul(radix)?.checked_add(digit.to_digit(radix)?));
        let char = value.and_then(char::from_u32).filter(|char| *char != '\0').unwrap_or('\u{fffd}');
        let semicolon = usize::from(digits[length..].starts_with(';'));
        return (length > 0).then_some((char, digits_begin + length + semicolon));
    }
    let length = rest.bytes().take(MAX_NAME + 1).take_while(u8::is_ascii_alphanumeric).count();
    let name = &rest[..length];
    if rest[length..].starts_with(';')
        && let Some((_, char)) = NAMED.iter().find(|(known, _)| *known == name)
    {
        return Some((*char, 1 + length + 1));
    }
    let prefix = WITHOUT_SEMICOLON.iter().find(|known| name.starts_with(**known))?;
    let (_, char) = NAMED.iter().find(|(known, _)| known == prefix)?;
    Some((*char, 1 + prefix.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_decoded_as_browsers_do() {
        for (text, expected) in [
            ("&#64;a", Some(('@', 5))),
            ("&#64a", Some(('@', 4))),
            ("&#x40;", Some(('@', 6))),
            ("&#X00000000040g", Some(('@', 14))),
            ("&#99999999999999999999;", Some(('\u{fffd}', 23))),
            ("&#;", None),
            ("&#x;", None),
            ("&commat;", Some(('@', 8))),
            ("&commat", None),
            ("&ltx", Some(('<', 3))),
            ("&amp;#64;", Some(('&', 5))),
            ("&unknown;", None),
            ("& a", None),
            ("&", None),
            ("&é;", None),
        ] {
            assert_eq!(decode(text), expected, "{text}");
        }
        assert!(NAMED.iter().all(|(name, _)| name.len() <= MAX_NAME));
    }
}

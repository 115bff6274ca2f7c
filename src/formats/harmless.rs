//! Text from files, models and tools, made harmless for terminals and logs.

/// What is shown instead of a character that could steer a terminal or turn the direction of writing; `None` where
/// the character may stay. Tabs may, line ends may not.
pub(super) fn stand_in(letter: char) -> Option<char> {
    match letter {
        '\t' => None,
        '\0'..='\x1f' => char::from_u32(0x2400 + letter as u32),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// A text on one line, without anything that could steer a terminal.
pub fn line(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            '\n' | '\r' | '\t' => ' ',
            _ => stand_in(letter).unwrap_or(letter),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(super::line("a\x1b[31m\nb\u{9b}0m\u{202e}\0"), "a␛[31m b\u{fffd}0m\u{fffd}␀");
    }
}

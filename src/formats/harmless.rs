//! Text from files, models and tools, made harmless for terminals and logs.

/// What is shown instead of a character that could steer a terminal or turn the direction of writing; `None` where
/// the character may stay. Tabs may, line ends may not.
pub(super) fn stand_in(letter: char) -> Option<char> {
    match letter {
        '\t' => None,
        '\0'..='\x1f' => char::from_u32(0x2400 + letter as u32),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// Whether a `[` behind this text would begin a command that CI systems look for anywhere in a line: `##[add-mask]`
/// (GitHub's runner), `##vso[` (Azure Pipelines), `##teamcity[`.
pub(super) fn opens_command(before: &str) -> bool {
    before.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).ends_with("##")
}

/// A text in Markdown that shows it as it is, on one line and in at most `most` characters: no link, no image, no HTML.
pub(super) fn markdown(text: &str, most: usize) -> String {
    let mut letters = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect::<Vec<_>>();
    if letters.len() > most {
        letters.truncate(most.saturating_sub(1));
        letters.push('…');
    }
    let mut harmless = String::with_capacity(letters.len() * 2);
    for letter in letters {
        if letter.is_ascii_punctuation() {
            harmless.push('\\');
        }
        harmless.push(stand_in(letter).unwrap_or(letter));
    }
    harmless
}

/// A text on one line, without anything that could steer a terminal or a CI system.
pub fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' => line.push(' '),
            '[' if opens_command(&line) => line.push_str("\\["),
            _ => line.push(stand_in(letter).unwrap_or(letter)),
        }
    }
    line
}

/// A text of several lines, without anything that could steer a terminal or a CI system. A text without such is the same.
pub fn text(text: &str) -> std::borrow::Cow<'_, str> {
    let mut harmless = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), "\n"),
            None => (line, ""),
        };
        let begins = harmless.len();
        for letter in line.chars() {
            match letter {
                '[' if opens_command(&harmless[begins..]) => harmless.push_str("\\["),
                // They join letters; by themselves they do nothing.
                '\u{200c}' | '\u{200d}' => harmless.push(letter),
                _ => harmless.push(stand_in(letter).unwrap_or(letter)),
            }
        }
        let line = &harmless[begins..];
        let colons = line.len() - line.trim_start().len();
        if line[colons..].starts_with("::") {
            harmless.insert(begins + colons, '\\');
        }
        harmless.push_str(end);
    }
    if harmless == text { text.into() } else { harmless.into() }
}

/// Lines of our own, in which names from elsewhere may stand where a CI system looks for a command: at the beginning, or
/// behind `##`. Everything else stays, our own colours included.
pub fn log(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains("::") && !text.contains("##") {
        return text.into();
    }
    let mut harmless = String::with_capacity(text.len());
    for line in text.split_inclusive(['\n', '\r']) {
        let begins = harmless.len();
        for letter in line.chars() {
            match letter {
                '[' if opens_command(&harmless[begins..]) => harmless.push_str("\\["),
                _ => harmless.push(letter),
            }
        }
        let at = begins + blank(&harmless[begins..]);
        if harmless[at..].starts_with("::") {
            harmless.insert(at, '\\');
        }
    }
    harmless.into()
}

/// The length of the white space and the colours that a line begins with.
fn blank(line: &str) -> usize {
    let mut rest = line;
    loop {
        let behind = rest.trim_start();
        let colour = behind.strip_prefix("\u{1b}[").and_then(|colour| {
            let end = colour.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
            colour[end..].strip_prefix('m')
        });
        match colour {
            Some(behind) => rest = behind,
            None => return line.len() - behind.len(),
        }
    }
}

/// The same JSON value in harmless characters: what [`line`] replaces is escaped instead.
pub(super) fn json(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for letter in text.chars() {
        if (letter > '\x7e' && stand_in(letter).is_some()) || (letter == '[' && opens_command(&harmless)) {
            harmless.push_str(&format!("\\u{:04x}", letter as u32));
        } else {
            harmless.push(letter);
        }
    }
    harmless
}

/// A file's name at the beginning of a line: no CI system reads the line as a command.
pub(super) fn beginning(name: &str) -> String {
    let name = line(name);
    if name.trim_start().starts_with("::") { format!("./{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(line("a\x1b[31m\nb\u{9b}0m\u{202e}\0"), "a␛[31m b\u{fffd}0m\u{fffd}␀");
    }

    #[test]
    fn nothing_steers_a_ci_system() {
        assert_eq!(line("a ##[add-mask]b ##vso[c]d ## e[f] #[g]"), "a ##\\[add-mask]b ##vso\\[c]d ## e[f] #[g]");
        assert_eq!(beginning(" ::error::x.yaml"), "./ ::error::x.yaml");
        assert_eq!(beginning("a::b.yaml"), "a::b.yaml");
    }

    #[test]
    fn a_harmless_text_stays_as_it_is_and_another_keeps_its_lines() {
        let plain = "# A title\n\n\ta ::b:: c\n  - x ## [y] ## z\nعربی\u{200c}ها 👨\u{200d}👩\n";
        assert!(matches!(text(plain), std::borrow::Cow::Borrowed(_)));
        let hostile = "::error::a\r\n \u{a0}::stop-commands::b\r::c\n##vso[d]\x1b]8;;x\x07e\n::f";
        assert_eq!(text(hostile), "\\::error::a\n \u{a0}\\::stop-commands::b␍::c\n##vso\\[d]␛]8;;x␇e\n\\::f");
    }

    #[test]
    fn a_log_line_begins_with_no_command() {
        assert!(matches!(log("a.yaml: 1 fixed\n"), std::borrow::Cow::Borrowed(_)));
        let hostile = "::stop-commands::a: 1\n \u{1b}[1;31m ::b\u{1b}[0m\nx ::c\r::d ##[e]##vso[f]";
        let expected = "\\::stop-commands::a: 1\n \u{1b}[1;31m \\::b\u{1b}[0m\nx ::c\r\\::d ##\\[e]##vso\\[f]";
        assert_eq!(log(hostile), expected);
    }

    #[test]
    fn markdown_shows_what_is_there() {
        assert_eq!(markdown("![a](https://x/?y)\n| <b>\u{1b}", 100), r"\!\[a\]\(https\:\/\/x\/\?y\) \| \<b\>␛");
        assert_eq!(markdown("abcdef", 4), "abc…");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "##[a]": ["\u{9b}\u{202e}\x7f\x1b\\##[x]", "ä ##[[]]"] });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert!(!text.contains("##[") && text.chars().all(|it| it == '\n' || stand_in(it).is_none()), "{text}");
    }
}

//! Makes text from files, models and tools safe to print to terminals, CI logs and Markdown.

use std::borrow::Cow;

/// The replacement for a character that could control a terminal or change the text direction; `None` for a harmless one.
/// Tabs are harmless, line breaks aren't.
pub(crate) fn replacement_char(char: char) -> Option<char> {
    match char {
        '\t' => None,
        '\0'..='\x1f' => char::from_u32(0x2400 + char as u32),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        // Fillers, musical format controls, and the plane of tags and further variation selectors.
        | '\u{115f}'..='\u{1160}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// Whether a `[` after this text would start a command that CI systems recognize anywhere in a line: `##[add-mask]`
/// (GitHub's runner), `##vso[` (Azure Pipelines), `##teamcity[`.
pub(crate) fn opens_ci_command(before: &str) -> bool {
    before.trim_end_matches(|char: char| char.is_ascii_alphabetic()).ends_with("##")
}

/// Escapes a text for Markdown, on one line and truncated to `max_chars` characters.
pub(crate) fn escape_markdown(text: &str, max_chars: usize) -> String {
    let mut chars = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect::<Vec<_>>();
    if chars.len() > max_chars {
        chars.truncate(max_chars.saturating_sub(1));
        chars.push('…');
    }
    let mut escaped = String::with_capacity(chars.len() * 2);
    for char in chars {
        if char.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(replacement_char(char).unwrap_or(char));
    }
    escaped
}

/// Whether people can't see a character behind `before`. Joiners, variation selectors and soft hyphens are fine one at a time where a
/// script, an emoji or a word needs them; in a row, or elsewhere, they can spell a text.
pub(crate) fn is_hidden(before: char, char: char) -> bool {
    let is_selector = |char| matches!(char, '\u{fe00}'..='\u{fe0f}' | '\u{180b}'..='\u{180d}' | '\u{180f}');
    match char {
        '\u{200c}' | '\u{200d}' => before.is_ascii() || replacement_char(before).is_some(),
        // Behind a digit, they make a keycap.
        '\u{fe0e}' | '\u{fe0f}' if before.is_ascii_digit() || matches!(before, '#' | '*') => false,
        _ if is_selector(char) => {
            before.is_ascii() || replacement_char(before).is_some() || is_selector(before) || before == '\u{ad}'
        }
        '\u{ad}' | '\u{34f}' => !before.is_alphabetic(),
        _ => replacement_char(char).is_some(),
    }
}

/// Replaces invisible characters, but keeps line breaks, and joiners where a script or an emoji needs them.
pub(crate) fn replace_control_chars(text: &str) -> Cow<'_, str> {
    let mut plain = plain_prefix(text);
    if plain == text.len() {
        return Cow::Borrowed(text);
    }
    let mut visible = String::with_capacity(text.len());
    let (mut rest, mut before) = (text, '\n');
    loop {
        visible.push_str(&rest[..plain]);
        before = rest[..plain].chars().next_back().unwrap_or(before);
        let mut chars = rest[plain..].chars();
        let Some(char) = chars.next() else { return Cow::Owned(visible) };
        rest = chars.as_str();
        match char {
            '\r' if rest.starts_with('\n') => {}
            _ if is_hidden(before, char) => visible.push(replacement_char(char).unwrap_or('\u{fffd}')),
            _ => visible.push(char),
        }
        before = char;
        plain = plain_prefix(rest);
    }
}

/// Replaces characters that people can't see in a name or a value by `_`. Control characters that JSON escapes stay, and so do
/// joiners where a script or an emoji needs them.
pub(crate) fn replace_hidden(text: &str) -> Cow<'_, str> {
    let mut before = '\n';
    let mut visible = String::with_capacity(text.len());
    for char in text.chars() {
        let is_replaced = char > '\x7e' && is_hidden(before, char);
        visible.push(if is_replaced { '_' } else { char });
        before = char;
    }
    if visible == text { text.into() } else { visible.into() }
}

/// How many bytes at the start of a text are visible ASCII characters and line feeds.
fn plain_prefix(text: &str) -> usize {
    const STRIDE: usize = 32;
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) | (*byte == b'\n');
    // Without an early exit, so that the compiler can test many bytes at once.
    let all_plain = |chunk: &&[u8]| chunk.iter().fold(true, |plain, byte| plain & is_plain(byte));
    let strides = text.as_bytes().chunks_exact(STRIDE).take_while(all_plain).count() * STRIDE;
    strides + text.as_bytes()[strides..].iter().take_while(|byte| is_plain(byte)).count()
}

/// Neutralizes a line of untrusted Markdown: links, images and HTML are shown as source text. Emphasis, lists, headings and
/// inline code stay.
pub(crate) fn neutralize_markdown_line(line: &str) -> String {
    let line = line.replace('\n', " ");
    let line = replace_control_chars(&line);
    let mut escaped = String::with_capacity(line.len() + 8);
    let mut rest = &*line;
    // The previous character, unless it was escaped.
    let mut before = ' ';
    while let Some(char) = rest.chars().next() {
        let behind = &rest[char.len_utf8()..];
        let next = behind.chars().next().unwrap_or(' ');
        if char == '\\' && next.is_ascii_punctuation() {
            escaped.push(char);
            escaped.push(next);
            rest = &behind[1..];
            before = ' ';
            continue;
        }
        if char == '`' {
            let marks = rest.len() - rest.trim_start_matches('`').len();
            match code_span(rest, marks) {
                Some(span) => {
                    escaped.push_str(span);
                    rest = &rest[span.len()..];
                }
                // It could pair with a backtick on a later line and invert what is code.
                None => {
                    escaped.push_str(&"\\`".repeat(marks));
                    rest = &rest[marks..];
                }
            }
            before = '`';
            continue;
        }
        let is_live = match char {
            '[' | ']' => true,
            '<' => next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'),
            // A character reference could be invisible.
            '&' => {
                let name = behind.trim_start_matches('#').trim_start_matches(|it: char| it.is_ascii_alphanumeric());
                name.starts_with(';')
            }
            // Some renderers treat these as delimiters of formulas or code blocks that span lines.
            '$' => next == '$' || before == '$',
            '~' => next == '~' && behind.starts_with("~~"),
            _ => false,
        };
        if is_live {
            escaped.push('\\');
        }
        escaped.push(char);
        before = char;
        rest = behind;
    }
    escaped
}

/// The code span at the beginning of a text, within the line. A `|` in it could split a table cell.
fn code_span(text: &str, marks: usize) -> Option<&str> {
    let mut at = marks;
    loop {
        at += text[at..].find('`')?;
        let run = text[at..].len() - text[at..].trim_start_matches('`').len();
        at += run;
        if run == marks {
            return Some(&text[..at]).filter(|span| !span.contains('|'));
        }
    }
}

/// A text as inline code in Markdown.
pub(crate) fn inline_code(text: &str) -> String {
    let text = replace_control_chars(text).replace('\n', " ");
    let longest_run = text.split(|char| char != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest_run + 1);
    match () {
        () if text.trim().is_empty() => String::new(),
        () if text.starts_with('`') || text.ends_with('`') => format!("{fence} {text} {fence}"),
        () => format!("{fence}{text}{fence}"),
    }
}

/// A text on one line, without terminal or CI commands.
pub fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' | '\r' | '\t' => line.push(' '),
            _ => push_without_ci_command(&mut line, 0, replacement_char(char).unwrap_or(char)),
        }
    }
    line
}

/// Adds a character to a line that begins at `begins`.
fn push_without_ci_command(text: &mut String, begins: usize, char: char) {
    if char == '[' && opens_ci_command(&text[begins..]) {
        text.push('\\');
    }
    text.push(char);
}

/// Escapes a CI command at the beginning of the last line, which begins at `begins`.
fn escape_line_start(text: &mut String, begins: usize) {
    let at = begins + leading_blank_length(&text[begins..]);
    if text[at..].starts_with("::") {
        text.insert(at, '\\');
    }
}

/// A text with several lines, without terminal or CI commands.
pub fn text(text: &str) -> std::borrow::Cow<'_, str> {
    let mut sanitized = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), "\n"),
            None => (line, ""),
        };
        let begins = sanitized.len();
        for char in line.chars() {
            let is_joiner = matches!(char, '\u{200c}' | '\u{200d}');
            let shown = replacement_char(char).filter(|_| !is_joiner).unwrap_or(char);
            push_without_ci_command(&mut sanitized, begins, shown);
        }
        escape_line_start(&mut sanitized, begins);
        sanitized.push_str(end);
    }
    if sanitized == text { text.into() } else { sanitized.into() }
}

/// Removes CI commands from our own output, which can contain foreign names at the beginning of a line or after `##`.
/// Everything else stays, including colours.
pub fn ci_log(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains("::") && !text.contains("##") {
        return text.into();
    }
    let mut sanitized = String::with_capacity(text.len());
    for line in text.split_inclusive(['\n', '\r']) {
        let begins = sanitized.len();
        line.chars().for_each(|char| push_without_ci_command(&mut sanitized, begins, char));
        escape_line_start(&mut sanitized, begins);
    }
    sanitized.into()
}

/// The length of the white space and the colour codes at the beginning of a line.
fn leading_blank_length(line: &str) -> usize {
    let mut rest = line;
    loop {
        let behind = rest.trim_start();
        let colour = behind.strip_prefix("\u{1b}[").and_then(|colour| {
            let end = colour.find(|char: char| !char.is_ascii_digit() && char != ';')?;
            colour[end..].strip_prefix('m')
        });
        match colour {
            Some(behind) => rest = behind,
            None => return line.len() - behind.len(),
        }
    }
}

/// The same JSON value in harmless characters: what [`line`] replaces is escaped instead.
pub fn escape_json(text: &str) -> String {
    let mut sanitized = String::with_capacity(text.len());
    for char in text.chars() {
        if (char > '\x7e' && replacement_char(char).is_some()) || (char == '[' && opens_ci_command(&sanitized)) {
            // Characters beyond the first 65,536 are written as surrogate pairs.
            let units = char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            sanitized.push_str(&units);
        } else {
            sanitized.push(char);
        }
    }
    sanitized
}

/// A file's name for the beginning of a line, without CI commands.
pub(crate) fn line_start(name: &str) -> String {
    let name = line(name);
    if name.trim_start().starts_with("::") { format!("./{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_replaced_at_every_position() {
        for length in 0..100 {
            let plain = "a\t\nz ~".chars().cycle().take(length).collect::<String>();
            assert_eq!(replace_control_chars(&plain), plain);
            for (text, shown) in
                [("\u{1b}", "␛"), ("ä", "ä"), ("\r\n", "\n"), ("\u{202e}", "\u{fffd}"), ("\u{7f}", "␡")]
            {
                let [text, shown] = [text, shown].map(|middle| format!("{plain}{middle}{plain}{middle}"));
                assert_eq!(replace_control_chars(&text), shown);
            }
        }
    }

    #[test]
    fn what_nobody_sees_is_replaced_unless_a_script_or_an_emoji_needs_it() {
        let fine = "❤\u{fe0f} 1\u{fe0f}\u{20e3} 👩\u{200d}❤\u{fe0f}\u{200d}👨 می\u{200c}خواهم Donau\u{ad}dampf 葛\u{fe00} ᠠ\u{180b}";
        assert_eq!((&*replace_control_chars(fine), &*replace_hidden(fine)), (fine, fine));
        let hidden =
            "a\u{fe00}b\u{fe0f}\u{fe01} 😀\u{fe0f}\u{fe02}\u{e0101} \u{ad}c\u{ad}\u{ad} \u{200b}\u{e0041}\u{34f}";
        let shown = "a_b__ 😀\u{fe0f}__ _c\u{ad}_ ___";
        assert_eq!(replace_hidden(hidden), shown);
        assert_eq!(replace_control_chars(hidden), shown.replace('_', "\u{fffd}"));
    }

    #[test]
    fn terminal_control_is_replaced() {
        assert_eq!(line("a\x1b[31m\nb\u{9b}0m\u{202e}\0"), "a␛[31m b\u{fffd}0m\u{fffd}␀");
    }

    #[test]
    fn ci_commands_are_escaped() {
        assert_eq!(line("a ##[add-mask]b ##vso[c]d ## e[f] #[g]"), "a ##\\[add-mask]b ##vso\\[c]d ## e[f] #[g]");
        assert_eq!(line_start(" ::error::x.yaml"), "./ ::error::x.yaml");
        assert_eq!(line_start("a::b.yaml"), "a::b.yaml");
    }

    #[test]
    fn a_harmless_text_is_borrowed_and_another_keeps_its_lines() {
        let plain = "# A title\n\n\ta ::b:: c\n  - x ## [y] ## z\nعربی\u{200c}ها 👨\u{200d}👩\n";
        assert!(matches!(text(plain), std::borrow::Cow::Borrowed(_)));
        let hostile = "::error::a\r\n \u{a0}::stop-commands::b\r::c\n##vso[d]\x1b]8;;x\x07e\n::f";
        assert_eq!(text(hostile), "\\::error::a\n \u{a0}\\::stop-commands::b␍::c\n##vso\\[d]␛]8;;x␇e\n\\::f");
    }

    #[test]
    fn ci_commands_at_the_start_of_a_line_are_escaped() {
        assert!(matches!(ci_log("a.yaml: 1 fixed\n"), std::borrow::Cow::Borrowed(_)));
        let hostile = "::stop-commands::a: 1\n \u{1b}[1;31m ::b\u{1b}[0m\nx ::c\r::d ##[e]##vso[f]";
        let expected = "\\::stop-commands::a: 1\n \u{1b}[1;31m \\::b\u{1b}[0m\nx ::c\r\\::d ##\\[e]##vso\\[f]";
        assert_eq!(ci_log(hostile), expected);
    }

    #[test]
    fn markdown_is_shown_as_source() {
        assert_eq!(escape_markdown("![a](https://x/?y)\n| <b>\u{1b}", 100), r"\!\[a\]\(https\:\/\/x\/\?y\) \| \<b\>␛");
        assert_eq!(escape_markdown("abcdef", 4), "abc…");
    }

    #[test]
    fn markdown_of_others_is_not_live() {
        for (markdown, inert_markdown) in [
            (
                "![a](http://x) [b](http://y 'c') [d]: http://z [^1]",
                r"!\[a\](http://x) \[b\](http://y 'c') \[d\]: http://z \[^1\]",
            ),
            (r"\[a](b) \\[a](b) \\\[a](b)", r"\[a\](b) \\\[a\](b) \\\[a\](b)"),
            (
                "<img src=x> <!-- </p> <?x <https://a> a < b, 1<2",
                r"\<img src=x> \<!-- \</p> \<?x \<https://a> a < b, 1<2",
            ),
            ("**a** _b_ `Vec<T>[0]` ``a`[b]``", "**a** _b_ `Vec<T>[0]` ``a`[b]``"),
            ("a ` [b](c)", r"a \` \[b\](c)"),
            ("`` ` [b](c) `", r"\`\` ` [b](c) `"),
            ("a `x | ![i](u)` b", r"a \`x | !\[i\](u)\` b"),
            ("- ```mermaid", r"- \`\`\`mermaid"),
            ("> ~~~", r"> \~~~"),
            ("$$ $5 a $$", r"\$\$ $5 a \$\$"),
            ("&#x202e; &lt;b&gt; a & b ?a=1&b=2", r"\&#x202e; \&lt;b\&gt; a & b ?a=1&b=2"),
            ("\u{1b}]52;c;eA==\u{7} a\u{202e}b\u{200b}c\u{e0041}", "␛\\]52;c;eA==␇ a\u{fffd}b\u{fffd}c\u{fffd}"),
        ] {
            assert_eq!(neutralize_markdown_line(markdown), inert_markdown, "{markdown}");
        }
        assert_eq!(replace_control_chars("👨\u{200d}👩 a\u{200d}b\r\nc\rd"), "👨\u{200d}👩 a\u{fffd}b\nc␍d");
        assert_eq!([inline_code("a"), inline_code("`a"), inline_code("a``b\n")], ["`a`", "`` `a ``", "```a``b ```"]);
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "##[a]": ["\u{9b}\u{202e}\x7f\x1b\\##[x]", "ä ##[[]]"] });
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert!(!text.contains("##[") && text.chars().all(|it| it == '\n' || replacement_char(it).is_none()), "{text}");
    }
}

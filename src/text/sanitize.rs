//! Text from files, models and tools, made harmless for terminals and logs.

/// What is shown instead of a character that could steer a terminal or turn the direction of writing; `None` where
/// the character may stay. Tabs may, line ends may not.
pub(crate) fn replacement_char(letter: char) -> Option<char> {
    match letter {
        '\t' => None,
        '\0'..='\x1f' => char::from_u32(0x2400 + letter as u32),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// Whether a `[` behind this text would begin a command that CI systems look for anywhere in a line: `##[add-mask]`
/// (GitHub's runner), `##vso[` (Azure Pipelines), `##teamcity[`.
pub(crate) fn opens_ci_command(before: &str) -> bool {
    before.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).ends_with("##")
}

/// A text in Markdown that shows it as it is, on one line and in at most `most` characters: no link, no image, no HTML.
pub(crate) fn escape_markdown(text: &str, most: usize) -> String {
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
        harmless.push(replacement_char(letter).unwrap_or(letter));
    }
    harmless
}

/// A text in which every character shows, on the same lines. Joiners stay where a script or an emoji needs them.
pub(crate) fn replace_control_chars(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut before = '\n';
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => visible.push(letter),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\u{200c}' | '\u{200d}' if !before.is_ascii() && replacement_char(before).is_none() => visible.push(letter),
            _ => visible.push(replacement_char(letter).unwrap_or(letter)),
        }
        before = letter;
    }
    visible
}

/// One line of somebody's Markdown, in which nothing is live: a link or an image shows as it is written, address and all,
/// and so does HTML. Emphasis, lists, headings and code within the line stay.
pub(crate) fn neutralize_markdown_line(line: &str) -> String {
    let line = replace_control_chars(&line.replace('\n', " "));
    let mut inert = String::with_capacity(line.len() + 8);
    let mut rest = line.as_str();
    // The letter before, where a backslash has not taken its meaning.
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        let next = behind.chars().next().unwrap_or(' ');
        if letter == '\\' && next.is_ascii_punctuation() {
            inert.push(letter);
            inert.push(next);
            rest = &behind[1..];
            before = ' ';
            continue;
        }
        if letter == '`' {
            let marks = rest.len() - rest.trim_start_matches('`').len();
            match code_span(rest, marks) {
                Some(span) => {
                    inert.push_str(span);
                    rest = &rest[span.len()..];
                }
                // It would reach for another mark on a line further down, and turn round what is code and what isn't.
                None => {
                    inert.push_str(&"\\`".repeat(marks));
                    rest = &rest[marks..];
                }
            }
            before = '`';
            continue;
        }
        let is_live = match letter {
            '[' | ']' => true,
            '<' => next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'),
            // A character reference could be one that doesn't show.
            '&' => {
                let name = behind.trim_start_matches('#').trim_start_matches(|it: char| it.is_ascii_alphanumeric());
                name.starts_with(';')
            }
            // Some readers take these for the ends of a formula or of a code block, over many lines.
            '$' => next == '$' || before == '$',
            '~' => next == '~' && behind.starts_with("~~"),
            _ => false,
        };
        if is_live {
            inert.push('\\');
        }
        inert.push(letter);
        before = letter;
        rest = behind;
    }
    inert
}

/// The code span that a text begins with, on this line. One with a bar could be torn in two by a table.
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

/// A text as code within a line of Markdown.
pub(crate) fn inline_code(text: &str) -> String {
    let text = replace_control_chars(text).replace('\n', " ");
    let longest_run = text.split(|letter| letter != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest_run + 1);
    match () {
        () if text.trim().is_empty() => String::new(),
        () if text.starts_with('`') || text.ends_with('`') => format!("{fence} {text} {fence}"),
        () => format!("{fence}{text}{fence}"),
    }
}

/// A text on one line, without anything that could steer a terminal or a CI system.
pub fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' | '\t' => line.push(' '),
            '[' if opens_ci_command(&line) => line.push_str("\\["),
            _ => line.push(replacement_char(letter).unwrap_or(letter)),
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
                '[' if opens_ci_command(&harmless[begins..]) => harmless.push_str("\\["),
                // They join letters; by themselves they do nothing.
                '\u{200c}' | '\u{200d}' => harmless.push(letter),
                _ => harmless.push(replacement_char(letter).unwrap_or(letter)),
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
pub fn ci_log(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains("::") && !text.contains("##") {
        return text.into();
    }
    let mut harmless = String::with_capacity(text.len());
    for line in text.split_inclusive(['\n', '\r']) {
        let begins = harmless.len();
        for letter in line.chars() {
            match letter {
                '[' if opens_ci_command(&harmless[begins..]) => harmless.push_str("\\["),
                _ => harmless.push(letter),
            }
        }
        let at = begins + leading_blank_length(&harmless[begins..]);
        if harmless[at..].starts_with("::") {
            harmless.insert(at, '\\');
        }
    }
    harmless.into()
}

/// The length of the white space and the colours that a line begins with.
fn leading_blank_length(line: &str) -> usize {
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
pub fn escape_json(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for letter in text.chars() {
        if (letter > '\x7e' && replacement_char(letter).is_some()) || (letter == '[' && opens_ci_command(&harmless)) {
            harmless.push_str(&format!("\\u{:04x}", letter as u32));
        } else {
            harmless.push(letter);
        }
    }
    harmless
}

/// A file's name at the beginning of a line: no CI system reads the line as a command.
pub(crate) fn line_start(name: &str) -> String {
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
        assert_eq!(line_start(" ::error::x.yaml"), "./ ::error::x.yaml");
        assert_eq!(line_start("a::b.yaml"), "a::b.yaml");
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
        assert!(matches!(ci_log("a.yaml: 1 fixed\n"), std::borrow::Cow::Borrowed(_)));
        let hostile = "::stop-commands::a: 1\n \u{1b}[1;31m ::b\u{1b}[0m\nx ::c\r::d ##[e]##vso[f]";
        let expected = "\\::stop-commands::a: 1\n \u{1b}[1;31m \\::b\u{1b}[0m\nx ::c\r\\::d ##\\[e]##vso\\[f]";
        assert_eq!(ci_log(hostile), expected);
    }

    #[test]
    fn markdown_shows_what_is_there() {
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

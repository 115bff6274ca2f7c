//! Finds every syntax error in a template. The engine's parser stops at the first one, so each tag is parsed by itself,
//! and the tags that open and close blocks are matched here.

use std::ops::Range;

use minijinja::machinery::{Token, parse, tokenize};

use super::tags::{BLOCKS, OTHERS, Tag, TagKind, end_of_raw, first_word, tags};

/// A syntax error.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) range: Range<usize>,
    pub(super) message: String,
    pub(super) help: String,
}

/// The greatest number of errors that are reported for one text.
const MAX_MISTAKES: usize = 1_000;

/// The greatest number of open blocks. The parser's own limit is slightly higher.
const MAX_OPEN: usize = 100;

/// Operators of other languages, anywhere in a tag, and what to write instead.
const FOREIGN_OPERATORS: &[(&str, &str)] = &[
    ("&&", "write `and` for `&&`"),
    ("||", "write `or` for `||`"),
    ("!==", "write `!=` for `!==`"),
    ("===", "write `==` for `===`"),
    ("?.", "test with `is defined` first: there is no `?.`"),
    ("??", "write `VALUE | default(OTHER)` for `??`"),
    ("?", "write `A if CONDITION else B` for `CONDITION ? A : B`"),
    ("=>", "there are no functions; use a `{% macro %}`"),
    ("++", "write `{% set x = x + 1 %}`"),
    ("+=", "write `{% set x = x + 1 %}`"),
    (";", "a tag holds one expression or statement, without `;`"),
    ("`", "write strings in quotes"),
    ("${", "within a tag, write the name of the variable only"),
    ("$", "write variables without `$`"),
];

/// Tags of other languages, and what to write instead.
const FOREIGN_TAGS: &[(&[&str], &str)] = &[
    (&["elseif", "elsif", "elsef"], "write `{% elif CONDITION %}`"),
    (&["foreach", "each"], "write `{% for ITEM in LIST %}`"),
    (&["while"], "the only loop is `{% for ITEM in LIST %}`"),
    (&["unless"], "write `{% if not CONDITION %}`"),
    (&["switch", "case", "when"], "write `{% if %}`, `{% elif %}` and `{% else %}`"),
    (&["let", "var", "const", "assign"], "write `{% set NAME = VALUE %}`"),
    (&["capture"], "write `{% set NAME %}` and `{% endset %}`"),
    (&["print", "echo"], "write `{{ VALUE }}`"),
    (&["comment"], "write `{# COMMENT #}`"),
    (&["verbatim"], "write `{% raw %}` and `{% endraw %}`"),
    (&["break"], "there is no `break`: select items with `{% for ITEM in LIST if CONDITION %}`"),
    (&["continue"], "there is no `continue`: put the rest of the loop into an `{% if %}`"),
];

const RAW: &str = "put braces that aren't a template tag between `{% raw %}` and `{% endraw %}`";

/// All syntax errors of a text for which the parser returns `error`.
pub(super) fn find_errors(text: &str, error: &minijinja::Error) -> Vec<SyntaxError> {
    let mut reading = TagChecker { text, open: Vec::new(), found: Vec::new() };
    for tag in tags(text) {
        if reading.found.len() > MAX_MISTAKES || reading.open.len() > MAX_OPEN {
            break;
        }
        reading.tag(&tag);
    }
    if reading.open.len() > MAX_OPEN {
        // The error is the nesting depth, which the parser reports.
        (reading.open, reading.found) = (Vec::new(), Vec::new());
    }
    for (word, range) in std::mem::take(&mut reading.open) {
        reading.unclosed(word, range);
    }
    if reading.found.is_empty() {
        let end = text.len();
        let range = error.range().unwrap_or(0..0);
        let range = range.start.min(end)..range.end.min(end);
        let help = match tags(text).into_iter().find(|tag| tag.range.contains(&range.start)) {
            Some(tag) => reading.help(&tag),
            None => RAW.to_owned(),
        };
        reading.report(range, error.detail().unwrap_or("syntax error"), help);
    }
    reading.found.sort_by_key(|mistake| mistake.range.start);
    reading.found
}

/// How often broken tags are removed from one text: those that close a removed one are found broken in the next pass.
const MAX_PASSES: usize = 8;

/// A text without its broken tags, for the other findings in it. Its places are those of the text.
#[derive(Debug)]
pub(super) struct RepairedText {
    pub(super) text: String,
    /// The words of the removed tags that may have set names.
    pub(super) words: Vec<String>,
}

/// Blanks out all broken tags; `None` if the rest of the text can't be parsed.
pub(super) fn without_broken_tags(text: &str) -> Option<RepairedText> {
    let mut repaired = RepairedText { text: text.to_owned(), words: Vec::new() };
    for _ in 0..MAX_PASSES {
        let Err(error) = parse(&repaired.text, "", Default::default()) else { return Some(repaired) };
        let errors = find_errors(&repaired.text, &error);
        if errors.len() > MAX_MISTAKES {
            return None;
        }
        // The errors are in order, and each is within one tag.
        let is_broken = |tag: &Tag| {
            let before = errors.partition_point(|error| error.range.start < tag.range.end);
            before > 0 && tag.range.start < errors[before - 1].range.end.max(1)
        };
        let broken: Vec<Tag> = tags(&repaired.text).into_iter().filter(is_broken).collect();
        if broken.is_empty() {
            return None;
        }
        for mut tag in broken {
            // What follows in the line of a comment that isn't closed is probably part of it, as is all that follows the start of
            // raw text.
            let rest = &repaired.text[tag.range.end..];
            if first_word(tag.content(&repaired.text)) == "raw" {
                tag.range.end = repaired.text.len();
            } else if tag.kind == TagKind::Comment {
                tag.range.end += rest.find('\n').unwrap_or(rest.len());
            }
            let content = tag.content(&repaired.text);
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
            if tag.kind == TagKind::Block {
                let words = content.split(|letter| !is_name(letter)).filter(|word| !word.is_empty());
                let words: Vec<String> = words.map(str::to_owned).collect();
                repaired.words.extend(words);
            }
            let written = &repaired.text[tag.range.clone()];
            let blank: String = written.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
            repaired.text.replace_range(tag.range, &blank);
        }
    }
    None
}

struct TagChecker<'a> {
    text: &'a str,
    /// The open blocks, the innermost last: the word and the range of the tag that opens each.
    open: Vec<(&'a str, Range<usize>)>,
    found: Vec<SyntaxError>,
}

impl<'a> TagChecker<'a> {
    fn report(&mut self, range: Range<usize>, message: &str, help: impl Into<String>) {
        self.found.push(SyntaxError { range, message: format!("template: {message}"), help: help.into() });
    }

    fn unclosed(&mut self, word: &str, range: Range<usize>) {
        let help = match word {
            "set" => "close it with `{% endset %}`, or write `{% set NAME = VALUE %}`".to_owned(),
            word => format!("close it with `{{% end{word} %}}`"),
        };
        self.report(range, &format!("this `{{% {word} %}}` is never closed"), help);
    }

    fn tag(&mut self, tag: &Tag) {
        if !tag.is_closed {
            let (open, close) = match tag.kind {
                TagKind::Variable => ("{{", "}}"),
                TagKind::Block => ("{%", "%}"),
                TagKind::Comment => ("{#", "#}"),
            };
            let help = match is_probably_literal(self.text, tag) {
                true => RAW.to_owned(),
                false => format!("close the tag with `{close}`; {RAW}"),
            };
            return self.report(tag.range.clone(), &format!("this `{open}` has no `{close}`"), help);
        }
        match tag.kind {
            TagKind::Comment => {}
            TagKind::Variable => self.read_alone(tag, "", ""),
            TagKind::Block => self.block(tag),
        }
    }

    fn block(&mut self, tag: &Tag) {
        let content = tag.content(self.text);
        let word = first_word(content);
        let innermost = self.open.last().map(|(word, _)| *word);
        let range = || tag.range.clone();
        match word {
            "raw" => {
                if end_of_raw(self.text, tag.range.end).is_none() {
                    self.unclosed("raw", range());
                }
            }
            "endraw" => {}
            "else" => {
                let rest = content[word.len()..].trim();
                if first_word(rest) == "if" {
                    self.report(range(), "unexpected condition after `else`", "write `{% elif CONDITION %}`");
                } else if !rest.is_empty() {
                    self.report(range(), "`else` takes no condition", "write `{% else %}`, or `{% elif CONDITION %}`");
                } else if !matches!(innermost, Some("if" | "for")) {
                    self.report_outside_block(tag, "else", "`{% if %}` or `{% for %}`");
                }
            }
            "elif" => match innermost {
                Some("if") => self.read_alone(tag, "{% if 1 %}", "{% endif %}"),
                _ => self.report_outside_block(tag, "elif", "`{% if %}`"),
            },
            "end" => {
                let help = match self.open.pop() {
                    Some((word, _)) => format!("write `{{% end{word} %}}`"),
                    None => "remove it: no block is open here".to_owned(),
                };
                self.report(range(), "`end` must name the block that it closes", help);
            }
            _ if BLOCKS.contains(&word.strip_prefix("end").unwrap_or_default()) => self.close(tag, word),
            _ if BLOCKS.contains(&word) && !(word == "set" && is_assignment(content)) => {
                self.read_alone(tag, "", &format!("{{% end{word} %}}"));
                self.open.push((word, range()));
            }
            _ => self.read_alone(tag, "", ""),
        }
    }

    fn report_outside_block(&mut self, tag: &Tag, word: &str, of: &str) {
        let message = match self.open.last() {
            Some((open, _)) => format!("`{word}` is within `{{% {open} %}}`, not directly within {of}"),
            None => format!("`{word}` isn't within {of}"),
        };
        self.report(tag.range.clone(), &message, "remove it, or check which blocks are opened and closed before it");
    }

    fn close(&mut self, tag: &Tag, word: &'a str) {
        let opener = word.trim_start_matches("end");
        let Some(at) = self.open.iter().rposition(|(open, _)| *open == opener) else {
            let help = match self.open.last() {
                Some((open, _)) => format!("the block that is open here ends with `{{% end{open} %}}`"),
                None => "remove it: no block is open here".to_owned(),
            };
            // It was probably meant to close the open block.
            self.open.pop();
            return self.report(tag.range.clone(), &format!("this `{{% {word} %}}` closes nothing"), help);
        };
        for (word, range) in self.open.split_off(at).split_off(1) {
            self.unclosed(word, range);
        }
        if opener != "block" && tag.content(self.text) != word {
            let help = format!("write `{{% {word} %}}`");
            self.report(tag.range.clone(), &format!("`{word}` takes no arguments"), help);
        }
    }

    /// Parses one tag by itself, between tags that complete it.
    fn read_alone(&mut self, tag: &Tag, before: &str, after: &str) {
        let alone = format!("{before}{}{after}", &self.text[tag.range.clone()]);
        let Err(error) = parse(&alone, "", Default::default()) else { return };
        let found = error.range().unwrap_or(0..0);
        let place = |at: usize| (tag.range.start + at.saturating_sub(before.len())).min(tag.range.end);
        let range = place(found.start)..place(found.end);
        let range = if range.is_empty() { tag.range.clone() } else { range };
        let help = self.help(tag);
        self.report(range, error.detail().unwrap_or("syntax error"), help);
    }

    fn help(&self, tag: &Tag) -> String {
        let content = tag.content(self.text);
        let word = first_word(content);
        if is_probably_literal(self.text, tag) {
            return RAW.to_owned();
        }
        let plain = without_strings(content);
        let of_word = FOREIGN_TAGS.iter().find(|(words, _)| tag.kind == TagKind::Block && words.contains(&word));
        let of_sign = || FOREIGN_OPERATORS.iter().find(|(sign, _)| plain.contains(sign)).map(|(_, help)| *help);
        if let Some(help) = of_word.map(|(_, help)| *help).or_else(of_sign) {
            return help.to_owned();
        }
        if plain.replace("!=", "").contains('!') {
            return "write `not` for `!`".to_owned();
        }
        if matches!(word, "if" | "elif") && is_assignment(content) {
            return "write `==` to compare".to_owned();
        }
        if tag.kind == TagKind::Variable && BLOCKS.contains(&word) {
            return format!("statements are written `{{% {word} ... %}}`");
        }
        match tag.kind {
            TagKind::Variable => "a tag holds one expression, such as `{{ inputs.NAME }}`".to_owned(),
            _ if BLOCKS.contains(&word) || OTHERS.contains(&word) => "check the syntax of this tag".to_owned(),
            _ => "the tags are `if`, `elif`, `else`, `for`, `set`, `with`, `macro`, `call`, `filter`, `include`, \
                  `import`, `from`, `raw`, and the `end` of each"
                .to_owned(),
        }
    }
}

/// Whether the braces probably belong to another language, such as Go templates, Handlebars or GitHub workflows.
fn is_probably_literal(text: &str, tag: &Tag) -> bool {
    let content = tag.content(text);
    let begins_otherwise =
        content.is_empty() || content.starts_with(['.', '$', '#', '/', '>', '^', '{', '&', '%', '}']);
    tag.kind == TagKind::Variable && (begins_otherwise || text[..tag.range.start].ends_with('$'))
}

/// Whether a tag has an `=` that isn't a comparison, outside of brackets.
fn is_assignment(content: &str) -> bool {
    let tokens = tokenize(content, true, Default::default()).map_while(Result::ok);
    let mut depth = 0_usize;
    tokens.into_iter().any(|(token, _)| {
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(token, Token::Assign)
    })
}

/// The content of a tag without its strings.
fn without_strings(content: &str) -> String {
    let mut plain = String::new();
    let mut quote = None;
    let mut letters = content.chars();
    while let Some(letter) = letters.next() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) if letter == '\\' => drop(letters.next()),
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::stray_tags;
    use super::*;

    fn found(text: &str) -> Vec<(String, String, String)> {
        let error = parse(text, "", Default::default()).err().unwrap_or_else(|| panic!("{text} is right"));
        let shown = |it: SyntaxError| (text[it.range.clone()].to_owned(), it.message, it.help);
        find_errors(text, &error).into_iter().map(shown).collect()
    }

    #[test]
    fn every_error_is_found_at_its_tag() {
        let text = "{{ a b }} {% if x %} {{ c && d }} {% for i in y %} {{ ok }} {% endfor %} {% frob %} {{ e( }}";
        let places: Vec<String> = found(text).into_iter().map(|it| it.0).collect();
        assert_eq!(places, ["b", "{% if x %}", "&", "frob", "}"], "{:?}", found(text));
        let text = "{% if a %}{% for b in c %}{% endif %}{% endfor %}{% macro m() %}";
        let places: Vec<String> = found(text).into_iter().map(|it| it.0).collect();
        assert_eq!(places, ["{% for b in c %}", "{% endfor %}", "{% macro m() %}"]);
    }

    #[test]
    fn the_help_fits_the_mistake() {
        for (text, help) in [
            ("{% if a %}{% elseif b %}{% endif %}", "{% elif"),
            ("{% if a %}{% else if b %}{% endif %}", "{% elif"),
            ("{{ a && b }}", "`and`"),
            ("{{ a || b }}", "`or`"),
            ("{{ !a }}", "`not`"),
            ("{{ a === b }}", "`==`"),
            ("{{ a ? b : c }}", "if CONDITION else"),
            ("{% if a %}{% end %}", "{% endif %}"),
            ("{% for a in b %}{% endif %}", "{% endfor %}"),
            ("{% if a = b %}{% endif %}", "`==`"),
            ("{% let a = b %}", "{% set"),
            ("{{ if a }}", "{% if"),
            ("${{ secrets.A && b }}", "{% raw %}"),
            ("{{ .Names }}", "{% raw %}"),
            ("{{#each x}}{{/each}}", "{% raw %}"),
            ("{{ }}", "{% raw %}"),
            ("{{ a", "`}}`"),
            ("{% set a %}", "{% endset %}"),
        ] {
            let found = found(text);
            assert!(found.iter().any(|(_, _, found)| found.contains(help)), "{text}: {found:?}");
            assert!(help.contains("raw") || !found[0].2.starts_with("braces"), "{text}: {found:?}");
        }
    }

    #[test]
    fn no_text_is_too_odd() {
        let pieces =
            ["{{", "}}", "{%", "%}", "{#", "#}", "'", "\"", "(", "}", "if", "endif", "raw", "endraw", " ", "ü", "\\"];
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            stray_tags(&text);
            if let Err(error) = parse(&text, "", Default::default()) {
                let found = find_errors(&text, &error);
                assert!(!found.is_empty());
                assert!(
                    found.iter().all(|it| it.range.start <= it.range.end && it.range.end <= text.len()),
                    "{text}: {found:?}"
                );
            }
        }
    }
}

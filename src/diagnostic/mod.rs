//! Findings for the author of a file: plain data with places. `formats` prints them.

use std::cell::LazyCell;
use std::ops::Range;
use std::sync::Arc;

/// A text that findings point into.
#[derive(Debug)]
pub struct Source {
    /// The name to show: the path as the user gave it, or `--set topic`.
    pub name: String,
    /// The whole text as it was read, line ends and all.
    pub text: String,
    line_starts: Vec<usize>,
    /// Whether findings may quote it.
    is_quotable: bool,
}

impl Source {
    /// Takes the text and indexes its lines (`\n`, `\r\n` and a lone `\r` end one).
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        let text = text.into();
        let bytes = text.as_bytes();
        let mut line_starts = vec![0];
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == b'\n' || (*byte == b'\r' && bytes.get(at + 1) != Some(&b'\n')) {
                line_starts.push(at + 1);
            }
        }
        Arc::new(Self { name: name.into(), text, line_starts, is_quotable: true })
    }

    /// The same text, which findings may not quote: the author of a link to a file may not be allowed to read the file.
    pub fn without_quotes(&self) -> Arc<Self> {
        let (name, text, line_starts) = (self.name.clone(), self.text.clone(), self.line_starts.clone());
        Arc::new(Self { name, text, line_starts, is_quotable: false })
    }

    /// Whether findings may quote it.
    pub fn is_quotable(&self) -> bool {
        self.is_quotable
    }

    /// Line and column of a byte offset, both 1-based, the column in characters. An offset past the end is the end;
    /// one inside a character is that character. A byte order mark takes no column.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.line_starts.partition_point(|start| *start <= offset) - 1;
        let before = &self.text[self.line_starts[line]..offset];
        let before = if line == 0 { before.strip_prefix('\u{feff}').unwrap_or(before) } else { before };
        (line + 1, before.chars().count() + 1)
    }

    /// The bytes of a line (1-based) without its end and without a byte order mark; empty past the last line.
    pub fn line_span(&self, line: usize) -> Range<usize> {
        let end_of_text = self.text.len();
        let mut start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(end_of_text);
        let next = self.line_starts.get(line).copied().unwrap_or(end_of_text);
        if start == 0 && self.text.starts_with('\u{feff}') {
            start = '\u{feff}'.len_utf8();
        }
        start..start + self.text[start..next.max(start)].trim_end_matches(['\n', '\r']).len()
    }
}

/// A range of bytes in a source.
#[derive(Debug, Clone)]
pub struct SourceSpan {
    /// The text that it is part of.
    pub source: Arc<Source>,
    /// Byte range; on character boundaries, start not after end, within the text.
    pub range: Range<usize>,
}

impl SourceSpan {
    /// The 1-based line and column of its start.
    pub fn start(&self) -> (usize, usize) {
        self.source.position(self.range.start)
    }

    /// The 1-based line and column of its end, exclusive.
    pub fn end(&self) -> (usize, usize) {
        self.source.position(self.range.end)
    }

    /// Whether it is the other one or a part of it.
    pub fn is_within(&self, other: &Self) -> bool {
        let (inner, outer) = (&self.range, &other.range);
        Arc::ptr_eq(&self.source, &other.source) && inner.start >= outer.start && inner.end <= outer.end
    }

    /// Whether one of the two is within the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_within(other) || other.is_within(self)
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job can't run.
    Error,
    /// The job can run, but probably not as intended.
    Warning,
}

impl Severity {
    /// The word that is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// All findings of one code. Made by `rule!`, from a page in `src/explained`.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The stable name, such as `unknown-tool`.
    pub code: &'static str,
    /// The severity of its findings.
    pub severity: Severity,
    /// The page that explains it, Markdown: a paragraph, then the sections `Bad` and `Good` with an example in each.
    pub page: &'static str,
}

impl Rule {
    /// What it is about: the page's first paragraph, on one line.
    pub fn summary(&self) -> String {
        let paragraph = self.page.split("\n\n").next().unwrap_or_default();
        paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A [`Rule`] with the page of its code: `rule!(Error "unknown-tool")`.
macro_rules! rule {
    ($severity:ident $code:literal) => {
        $crate::diagnostic::Rule {
            code: $code,
            severity: $crate::diagnostic::Severity::$severity,
            page: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/explained/", $code, ".md")),
        }
    };
}

pub(crate) use rule;

/// A second place that explains a finding.
#[derive(Debug, Clone)]
pub struct Label {
    /// The place.
    pub span: SourceSpan,
    /// What is there, in a few words in lower case.
    pub text: String,
}

/// A replacement that certainly fixes the finding.
#[derive(Debug, Clone)]
pub struct Fix {
    /// The replaced text.
    pub span: SourceSpan,
    /// The new text.
    pub replacement: String,
}

/// The number of findings that aren't shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OmittedFindings {
    /// How many of them are errors.
    pub errors: usize,
    /// How many of them are warnings.
    pub warnings: usize,
    /// Whether there may be more.
    pub at_least: bool,
}

impl OmittedFindings {
    /// Counts a finding, or all those that it summarizes.
    pub fn add(&mut self, finding: &Diagnostic) {
        match (finding.omitted, finding.severity) {
            (Some(more), _) => {
                self.errors += more.errors;
                self.warnings += more.warnings;
                self.at_least |= more.at_least;
            }
            (None, Severity::Error) => self.errors += 1,
            (None, Severity::Warning) => self.warnings += 1,
        }
    }

    /// The number of all.
    pub fn count(self) -> usize {
        self.errors + self.warnings
    }

    /// A finding that summarizes them, at the place of the first.
    pub fn to_diagnostic(self, place: SourceSpan) -> Diagnostic {
        let message = match (self.count(), self.at_least) {
            (0, _) => "there may be more findings; fix these first".to_owned(),
            (1, false) => "one more finding is not shown".to_owned(),
            (count, false) => format!("{count} more findings are not shown"),
            (count, true) => format!("at least {count} more findings are not shown"),
        };
        Diagnostic { omitted: Some(self), ..Diagnostic::error("too-many-findings", place, message) }
    }
}

/// The greatest length of a message, help or label in characters: it may quote a file.
const MAX_TEXT_CHARS: usize = 1_000;

/// The longest name that is compared with others, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// One finding.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// The stable code of its rule, such as `unknown-tool`.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The place.
    pub span: SourceSpan,
    /// Further places.
    pub labels: Vec<Label>,
    /// What to do, in one sentence.
    pub help: Option<String>,
    /// The certain fix, if there is one.
    pub fix: Option<Fix>,
    /// The omitted findings that this one summarizes.
    pub omitted: Option<OmittedFindings>,
}

impl Diagnostic {
    /// An error without labels, help or fix.
    pub fn error(code: &'static str, place: SourceSpan, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: truncate_middle(message.into()),
            span: place,
            labels: Vec::new(),
            help: None,
            fix: None,
            omitted: None,
        }
    }

    /// A warning without labels, help or fix.
    pub fn warning(code: &'static str, place: SourceSpan, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, place, message) }
    }

    /// Sets the help.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(truncate_middle(help.into()));
        self
    }

    /// Sets the help to the known name that is nearest to a misspelled `word`, with a fix if that is certain, or to
    /// `otherwise` if no name is near.
    #[must_use]
    pub fn suggest<'a>(
        self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
        otherwise: impl Into<String>,
    ) -> Self {
        let Some(Suggestion { name, is_certain }) = suggest(word, known) else { return self.help(otherwise) };
        let finding = self.help(format!("did you mean `{name}`?"));
        if is_certain { finding.replace_with(name) } else { finding }
    }

    /// Adds a second place.
    #[must_use]
    pub fn label(mut self, place: SourceSpan, text: impl Into<String>) -> Self {
        self.labels.push(Label { span: place, text: truncate_middle(text.into()) });
        self
    }

    /// Adds a fix at the finding's own place.
    #[must_use]
    pub fn replace_with(self, with: impl Into<String>) -> Self {
        let place = self.span.clone();
        self.replace_at(place, with)
    }

    /// Adds a fix at another place, such as within the quotes.
    #[must_use]
    pub fn replace_at(mut self, place: SourceSpan, with: impl Into<String>) -> Self {
        self.fix = Some(Fix { span: place, replacement: with.into() });
        self
    }

    /// The finding without quotes from texts that can't be shown.
    #[must_use]
    pub fn without_unquotable(&self) -> Self {
        let is_quotable = |place: &SourceSpan| place.source.is_quotable;
        let mut labels = self.labels.clone();
        labels.retain(|label| is_quotable(&label.span));
        let fix = self.fix.clone().filter(|fix| is_quotable(&fix.span));
        if is_quotable(&self.span) {
            return Self { labels, fix, ..self.clone() };
        }
        let place = SourceSpan { source: Source::new(self.span.source.name.as_str(), ""), range: 0..0 };
        let finding =
            Self::error(self.code, place, "this file is a link out of the repository, so its errors aren't shown");
        let finding = finding.help("name the file that the symbolic link points to");
        Self { severity: self.severity, omitted: self.omitted, ..finding }
    }
}

/// A known name that is near to a misspelled one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suggestion<'a> {
    /// The name.
    pub name: &'a str,
    /// Whether no other name is as near, and the difference is at most one typo. Only then is it a fix.
    pub is_certain: bool,
}

/// The text; if it is very long, its start and end.
fn truncate_middle(text: String) -> String {
    let (end, half) = (text.len(), MAX_TEXT_CHARS / 2);
    let left_out = || Some((text.char_indices().nth(half)?.0, text.char_indices().nth_back(half)?.0));
    match left_out().filter(|(head, tail)| end > MAX_TEXT_CHARS && head < tail) {
        Some((head, tail)) => format!("{}…{}", &text[..head], &text[tail..]),
        None => text,
    }
}

/// Typographic quotation marks, which word processors and chats use instead of `"` and `'`.
pub const TYPOGRAPHIC_QUOTES: [char; 10] = ['“', '”', '„', '‟', '‘', '’', '‚', '‛', '«', '»'];

/// The text within a pair of typographic quotes, if it is in one.
pub fn strip_typographic_quotes(text: &str) -> Option<&str> {
    let inner = text.strip_prefix(TYPOGRAPHIC_QUOTES)?.strip_suffix(TYPOGRAPHIC_QUOTES)?;
    (!inner.contains(TYPOGRAPHIC_QUOTES)).then_some(inner)
}

/// The least length of a word in which one different letter counts as a typo. Two swapped letters always do.
const MIN_CERTAIN: usize = 4;

/// Whether `word` is certainly a misspelling of `name`: it differs in case, in `-` and `_`, or by one typo in one of its
/// parts. With another digit, or another short part (`topic_a`, `topic_b`), it is another name.
fn is_certain_typo(word: &str, name: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        let folded = text.trim_matches(TYPOGRAPHIC_QUOTES).to_lowercase();
        folded.split(|letter: char| !letter.is_alphanumeric()).map(str::to_owned).collect()
    };
    let (left, right) = (parts(word), parts(name));
    if left.concat() == right.concat() {
        return true;
    }
    let is_typo = |one: &str, other: &str| {
        let is_word = |text: &str| text.chars().all(char::is_alphabetic);
        let longest = one.chars().count().max(other.chars().count());
        let sorted = |text: &str| {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            letters
        };
        let is_long = longest >= MIN_CERTAIN || sorted(one) == sorted(other);
        is_long && is_word(one) && is_word(other) && strsim::damerau_levenshtein(one, other) <= 1
    };
    if left.len() != right.len() {
        return is_typo(&left.concat(), &right.concat());
    }
    let mut differing = left.iter().zip(&right).filter(|(one, other)| one != other);
    match (differing.next(), differing.next()) {
        (Some((one, other)), None) => is_typo(one, other),
        _ => false,
    }
}

/// The nearest known name to a misspelled `word`, if at most a third of its letters differ, apart from case, `-` and `_`.
pub fn suggest_name<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest(word, known).map(|near| near.name)
}

/// The known name that `word` is certainly a misspelling of. It is good enough for a [`Fix`].
pub fn suggest_certain_name<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest(word, known).filter(|near| near.is_certain).map(|near| near.name)
}

/// Like [`suggest_name`], and whether it is certain. Of several equally near names, it returns the first.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<Suggestion<'a>> {
    // Comparing takes time and memory in proportion to the product of both lengths.
    if word.len() > MAX_NAME_BYTES {
        return None;
    }
    let fold = |text: &str| text.trim_matches(TYPOGRAPHIC_QUOTES).to_lowercase().replace('-', "_");
    let folded_word = LazyCell::new(|| fold(word));
    let mut best: Option<(usize, Suggestion<'a>)> = None;
    for name in known {
        if name.len() > MAX_NAME_BYTES {
            continue;
        }
        let most = name.chars().count().max(3) / 3;
        if word.is_ascii() && name.is_ascii() && word.len().abs_diff(name.len()) > most {
            continue;
        }
        let distance = strsim::damerau_levenshtein(&folded_word, &fold(name));
        if distance > most {
            continue;
        }
        match &mut best {
            Some((least, _)) if distance > *least => {}
            Some((least, near)) if distance == *least => near.is_certain &= near.name == name,
            _ => best = Some((distance, Suggestion { name, is_certain: true })),
        }
    }
    best.map(|(_, near)| Suggestion { is_certain: near.is_certain && is_certain_typo(word, near.name), ..near })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded() {
        let finding =
            |text: &str| Diagnostic::error("x", SourceSpan { source: Source::new("", ""), range: 0..0 }, text);
        let long = format!("`{}` is too long", "ä".repeat(1_000_000));
        let message = finding(&long).message;
        assert!(message.starts_with("`ää") && message.ends_with("ä` is too long") && message.contains("ä…ä"));
        assert_eq!(message.chars().count(), MAX_TEXT_CHARS + 2);
        assert!(finding("x").help(&*long).label(finding("").span, &*long).help.unwrap().len() < 3_000);
        let short = "ä".repeat(MAX_TEXT_CHARS);
        assert_eq!(finding(&short).message, short);
    }

    #[test]
    fn very_long_words_are_not_compared() {
        assert_eq!(suggest_name(&"x".repeat(4_000_000), ["network"; 1000]), None);
        assert_eq!(suggest_name("ä", ["ä".repeat(4_000_000).as_str(); 1000]), None);
        assert_eq!(suggest_name("netwrok", ["network"]), Some("network"));
        assert_eq!(suggest_name("İ", ["i̇"]), Some("i̇"));
    }

    #[test]
    fn an_ambiguous_word_is_uncertain() {
        assert_eq!(suggest_name("topic_c", ["topic_a", "topic_b"]), Some("topic_a"));
        assert_eq!(suggest_certain_name("topic_c", ["topic_a", "topic_b"]), None);
        assert_eq!(suggest_certain_name("topik_a", ["topic_a", "topic_a"]), Some("topic_a"));
        assert_eq!(suggest_certain_name("Topic-A", ["topic_a", "topic_b"]), Some("topic_a"));
        assert_eq!(suggest_certain_name("nothing", ["topic_a", "topic_b"]), None);
    }

    #[test]
    fn only_a_typo_is_certain() {
        for (word, known, is_certain) in [
            ("max-turns", "max_turns", true),
            ("MaxTurns", "max_turns", true),
            ("max_turnz", "max_turns", true),
            ("maxturn", "max_turns", true),
            ("parnet", "parent", true),
            ("cost_uds", "cost_usd", true),
            ("“open”", "open", true),
            ("claude-sonet-4-5", "claude-sonnet-4-5", true),
            ("max_tools", "max_tokens", false),
            ("topic_c", "topic_a", false),
            ("file2", "file1", false),
            ("gpt-4o", "gpt-4", false),
            ("claude-opus-4-6", "claude-opus-4-5", false),
            ("one", "on", false),
        ] {
            assert_eq!(suggest(word, [known]).is_some_and(|near| near.is_certain), is_certain, "{word}");
        }
        assert_eq!(strip_typographic_quotes("“a b”"), Some("a b"));
        assert_eq!(strip_typographic_quotes("“a” and “b”"), None);
        assert_eq!(strip_typographic_quotes("“"), None);
    }

    #[test]
    fn the_nearest_name_and_whether_it_is_the_only_one() {
        let known = ["prompt", "prompts", "tools", "a-b", "tokens"];
        assert_eq!(suggest("promt", known), Some(Suggestion { name: "prompt", is_certain: true }));
        assert_eq!(suggest("cat", ["car", "cap"]), Some(Suggestion { name: "car", is_certain: false }));
        assert_eq!(suggest("tast", ["task", "task"]), Some(Suggestion { name: "task", is_certain: true }));
        assert_eq!(suggest("A_B", known), Some(Suggestion { name: "a-b", is_certain: true }));
        assert_eq!(suggest("nothing", known), None);
        assert_eq!(suggest_name("tool", known), Some("tools"));
    }

    #[test]
    fn a_page_has_a_summary() {
        let rule =
            Rule { code: "x", severity: Severity::Error, page: "Two words,\non two lines.\n\nMore.\n\n## Bad\n" };
        assert_eq!(rule.summary(), "Two words, on two lines.");
    }
}

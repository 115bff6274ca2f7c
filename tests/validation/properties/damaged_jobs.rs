//! Hand-written jobs with pseudo-random damage.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use legwork::template::JobDir;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A job file of this repository.
#[derive(Debug)]
pub(crate) struct Fixture {
    path: PathBuf,
    pub(crate) text: String,
}

impl Fixture {
    /// The folder of its prompts.
    pub(crate) fn folder(&self) -> Option<JobDir> {
        JobDir::open(self.path.parent()?).ok()
    }
}

/// Every valid and invalid job of the repository.
pub(crate) static FIXTURES: LazyLock<Vec<Fixture>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open = vec![root.join("jobs"), root.join("tests/lints")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "yaml") {
                found.push(Fixture { text: std::fs::read_to_string(&path).unwrap(), path });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(found.len() > 50, "only {} fixtures", found.len());
    found
});

/// A change to a text.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    DeleteLine(Index),
    DuplicateLine(Index),
    SwapLines(Index, Index),
    Indent(Index, usize),
    Dedent(Index),
    Replace(Index, char),
    Delete(Index),
    Insert(Index, &'static str),
    Word(Index, &'static str),
    ByteOrderMark,
    CarriageReturns,
}

/// Typical typos, and the special characters of YAML and templates.
const SNIPPETS: &[&str] = &[
    "ä",
    "😀",
    "e\u{301}",
    "\u{2028}",
    "\u{feff}",
    "\u{7f}",
    "\0",
    "\t",
    "\r",
    "\n",
    "\n\n  ",
    " ",
    ": ",
    "- ",
    "? ",
    ", ",
    "#",
    " # ",
    "'",
    "\"",
    "\\",
    "\\u00e4",
    "|\n",
    ">-\n",
    "|2\n",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!x ",
    "!!int ",
    "<<: *a\n",
    "---\n",
    "...\n",
    "%YAML 1.2\n---\n",
    "@",
    "`",
    "~",
    "{{",
    "}}",
    "{{ x }}",
    "{{ inputs.x }}",
    "{{ inputs['x'] }}",
    "{% if x %}",
    "{% endif %}",
    "{% for a in inputs %}",
    "{% include 'x.md' %}",
    "{# ",
    "{{ x | y }}",
    "{{ f(x) }}",
    "{% raw %}",
];

/// Words to insert in place of another word.
const WORDS: &str = "
    name description inputs model parent system prompt tools max_turns max_tokens subagents limits cost_usd
    tokens wall_clock tool_calls parallel_subagents env network keep file type default enum secret untrusted
    string integer number boolean path list bash read_file write_file edit_file glob grep todo task allow
    timeout read_only open none always true false null yes 0 -1 1_000 012 1e9 .inf .nan 99999999999999999999
    20m anthropic replay anthropic/claude-sonnet-4-5 maxTurns allowed_tools system_prompt Read checks schema
    HOME ANTHROPIC_API_KEY
";

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let at = || any::<Index>();
    prop_oneof![
        1 => at().prop_map(Damage::DeleteLine),
        1 => at().prop_map(Damage::DuplicateLine),
        1 => (at(), at()).prop_map(|(one, other)| Damage::SwapLines(one, other)),
        1 => (at(), 1..4_usize).prop_map(|(line, by)| Damage::Indent(line, by)),
        1 => at().prop_map(Damage::Dedent),
        1 => (at(), any::<char>()).prop_map(|(at, letter)| Damage::Replace(at, letter)),
        2 => at().prop_map(Damage::Delete),
        4 => (at(), select(SNIPPETS)).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        4 => (at(), select(WORDS.split_whitespace().collect::<Vec<_>>())).prop_map(|(at, word)| Damage::Word(at, word)),
        1 => Just(Damage::ByteOrderMark),
        1 => Just(Damage::CarriageReturns),
    ]
}

/// Applies several changes, one after the other.
pub(crate) fn apply_all(text: &str, damages: &[Damage]) -> String {
    damages.iter().fold(text.to_owned(), |text, damage| damage.apply(&text))
}

impl Damage {
    fn apply(&self, text: &str) -> String {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        if lines.is_empty() {
            return "a".to_owned();
        }
        let line = |at: &Index| at.index(lines.len());
        match self {
            Self::DeleteLine(at) => {
                lines.remove(line(at));
            }
            Self::DuplicateLine(at) => lines.insert(line(at), lines[line(at)]),
            Self::SwapLines(one, other) => {
                let (one, other) = (line(one), line(other));
                lines.swap(one, other);
            }
            Self::Indent(at, by) => {
                let (at, indented) = (line(at), format!("{}{}", " ".repeat(*by), lines[line(at)]));
                lines[at] = &indented;
                return lines.concat();
            }
            Self::Dedent(at) => {
                let at = line(at);
                lines[at] = lines[at].strip_prefix("  ").unwrap_or(lines[at]);
            }
            Self::Replace(at, letter) => {
                return replace_range(text, letter_at(text, at), letter.encode_utf8(&mut [0; 4]));
            }
            Self::Delete(at) => return replace_range(text, letter_at(text, at), ""),
            Self::Insert(at, piece) => {
                let at = letter_at(text, at).start;
                return replace_range(text, at..at, piece);
            }
            Self::Word(at, word) => return replace_range(text, word_at(text, at), word),
            Self::ByteOrderMark => return format!("\u{feff}{text}"),
            Self::CarriageReturns => return text.replace('\n', "\r\n"),
        }
        lines.concat()
    }
}

fn replace_range(text: &str, range: std::ops::Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..range.start], &text[range.end..])
}

fn letter_at(text: &str, at: &Index) -> std::ops::Range<usize> {
    let (start, letter) = text.char_indices().nth(at.index(text.chars().count())).unwrap();
    start..start + letter.len_utf8()
}

/// The word at or before a character, or the character itself.
fn word_at(text: &str, at: &Index) -> std::ops::Range<usize> {
    let letter = letter_at(text, at);
    let is_part = |letter: char| letter.is_alphanumeric() || "_-/".contains(letter);
    let start = text[..letter.start]
        .rfind(|letter| !is_part(letter))
        .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
    let end = text[start..].find(|letter| !is_part(letter)).map_or(text.len(), |length| start + length);
    if end > start { start..end } else { letter }
}

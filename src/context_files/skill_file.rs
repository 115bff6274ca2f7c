//! Reads a skill: a folder with a `SKILL.md`, as the Agent Skills specification describes it
//! (<https://agentskills.io/specification>).

use std::path::Path;

use super::file_reader::{FileError, FileReader, ReadFile, check_reference, is_glob, plain_path};
use super::texts::{Skill, digest};
use crate::diagnostic::Source;
use crate::yaml::{self, Node, NodeKind};

/// The file with the instructions of a skill.
const SKILL_FILE: &str = "SKILL.md";
/// The largest `SKILL.md`, in bytes.
const MAX_SKILL_BYTES: usize = 128 << 10;
/// The largest front matter, in bytes.
const MAX_FRONT_MATTER_BYTES: usize = 16 << 10;
/// The longest name, in characters.
const MAX_NAME: usize = 64;
/// The longest description, in characters.
const MAX_DESCRIPTION: usize = 1024;
/// The longest `compatibility`, in characters.
const MAX_COMPATIBILITY: usize = 500;
/// The most tools that a skill may name.
const MAX_TOOLS: usize = 100;

const FORM: &str = "SKILL.md begins with front matter: a line `---`, `name:` and `description:`, and a line `---`";

/// Checks how a skill's folder is written. Returns it without `./`.
pub(super) fn check_entry(folder: &str, reference: Option<&str>) -> Result<String, FileError> {
    let folder = plain_path(folder)?;
    if Path::new(&folder).file_name().is_some_and(|name| name == SKILL_FILE) {
        return Err(FileError::new(format!("`{folder}` is the file of a skill"), "name the skill's folder"));
    }
    if is_glob(&folder) {
        return Err(FileError::new(format!("`{folder}` has a wildcard"), "name each skill's folder"));
    }
    check_reference(reference)?;
    Ok(folder)
}

/// Reads the skill in a folder.
pub(super) fn read(reader: &mut FileReader<'_>, folder: String, reference: Option<&str>) -> Result<Skill, FileError> {
    let file = format!("{folder}/{SKILL_FILE}");
    let ReadFile { commit, text, .. } = reader.read(&file, reference)?;
    let name = Path::new(&folder).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parsed = parse(&file, &name, &text)
        .map_err(|why| FileError::new(format!("`{file}`: {why}"), "see https://agentskills.io/specification"))?;
    Ok(Skill { folder, reference: reference.map(str::to_owned), commit, sha256: Some(digest(&text)), ..parsed })
}

/// Parses a `SKILL.md`. `folder_name` is the name of its folder.
fn parse(file: &str, folder_name: &str, text: &str) -> Result<Skill, String> {
    if text.len() > MAX_SKILL_BYTES {
        let limit = MAX_SKILL_BYTES >> 10;
        return Err(format!("it has {} bytes, and the limit is {limit} KiB; move parts to other files", text.len()));
    }
    let (front_matter, body) = split(text)?;
    // The opening line is kept, so that line numbers are those of the file.
    let source = Source::new(file, front_matter);
    let decoded = yaml::read::<Node>(&source);
    if let Some(finding) = decoded.findings.first() {
        let line = finding.span.start().0;
        let bare = front_matter.lines().nth(line.saturating_sub(1)).and_then(bare_text);
        let is_open =
            |text: &str| ['"', '\''].iter().any(|quote| text.starts_with(*quote) && text.matches(*quote).count() == 1);
        let help = match bare {
            Some(text) if is_open(text) => ": close the quote at the end of the text",
            Some(_) => ": put the whole text in quotes",
            None => "",
        };
        return Err(format!("line {line}: {}{help}", finding.message));
    }
    let is_cut = |text: &str| !text.starts_with(['"', '\'']) && text.contains(" #");
    if let Some(at) = front_matter.lines().position(|line| bare_text(line).is_some_and(is_cut)) {
        return Err(format!(
            "line {}: ` #` begins a comment, so the text would end before it: put the whole text in quotes",
            at + 1
        ));
    }
    let header = decoded
        .value
        .filter(|node| matches!(node.kind(), NodeKind::Mapping))
        .ok_or("its front matter isn't a mapping")?;
    let name = text_of(&header, "name", MAX_NAME)?.ok_or("`name` is missing in its front matter")?;
    check_name(&name)?;
    if name != folder_name {
        return Err(format!("its name is `{name}`, and its folder is `{folder_name}`: they must be the same"));
    }
    let description =
        text_of(&header, "description", MAX_DESCRIPTION)?.ok_or("`description` is missing in its front matter")?;
    text_of(&header, "license", MAX_FRONT_MATTER_BYTES)?;
    text_of(&header, "compatibility", MAX_COMPATIBILITY)?;
    if header.get("metadata").is_some_and(|metadata| !matches!(metadata.kind(), NodeKind::Mapping)) {
        return Err("`metadata` isn't a mapping".to_owned());
    }
    let allowed_tools = allowed_tools(&header)?;
    if body.trim().is_empty() {
        return Err("it has no instructions below its front matter".to_owned());
    }
    Ok(Skill {
        name,
        // It is one item of a list in the system prompt.
        description: description.split_whitespace().collect::<Vec<_>>().join(" "),
        folder: String::new(),
        reference: None,
        commit: None,
        sha256: None,
        allowed_tools,
        body: body.trim_matches('\n').to_owned() + "\n",
    })
}

/// The front matter with its opening line, and the text below it.
fn split(text: &str) -> Result<(&str, &str), String> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| is_fence(line)).ok_or_else(|| format!("it has no front matter; {FORM}"))?;
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok((&text[..end], &text[end + line.len()..]));
        }
        end += line.len();
        if end > MAX_FRONT_MATTER_BYTES {
            return Err(format!(
                "its front matter is longer than {} KiB, or has no end; {FORM}",
                MAX_FRONT_MATTER_BYTES >> 10
            ));
        }
    }
    Err(format!("its front matter has no end; {FORM}"))
}

/// The text of a line `key: text` for people, if it isn't in quotes and doesn't continue below. Some authors forget what YAML makes
/// of it.
fn bare_text(line: &str) -> Option<&str> {
    let (key, text) = line.split_once(": ")?;
    let text = text.trim();
    let is_block = |text: &str| matches!(text, "|" | ">" | "|-" | ">-" | "|+" | ">+");
    let is_quoted =
        ['"', '\''].iter().any(|quote| text.len() > 1 && text.starts_with(*quote) && text.ends_with(*quote));
    let is_for_people = matches!(key, "name" | "description" | "license" | "compatibility");
    (is_for_people && !is_quoted && !is_block(text) && !text.starts_with('#')).then_some(text)
}

/// The text of a key, if there is one.
fn text_of(header: &Node, key: &str, max_chars: usize) -> Result<Option<String>, String> {
    let Some(value) = header.get(key) else { return Ok(None) };
    let line = value.place().start().0;
    let text = value.as_str().map(str::trim).ok_or_else(|| format!("line {line}: `{key}` isn't a text; quote it"))?;
    match text.chars().count() {
        0 => Err(format!("line {line}: `{key}` is empty")),
        length if length > max_chars => {
            Err(format!("line {line}: `{key}` has {length} characters, and the limit is {max_chars}"))
        }
        _ => Ok(Some(text.to_owned())),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.chars().all(is_allowed) && !name.starts_with('-') && !name.ends_with('-') && !name.contains("--") {
        return Ok(());
    }
    Err(format!("the name `{name}` may only have `a-z`, `0-9` and single `-` between them"))
}

/// The tools in `allowed-tools`: words, some with rules in parentheses. Some authors write commas, or a list.
fn allowed_tools(header: &Node) -> Result<Vec<String>, String> {
    let Some(value) = header.get("allowed-tools") else { return Ok(Vec::new()) };
    let texts: Vec<String> = match value.kind() {
        NodeKind::List => value.items().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>(),
        _ => value.as_str().map(|text| vec![text.to_owned()]),
    }
    .ok_or("`allowed-tools` isn't a text")?;
    let mut tools: Vec<String> = Vec::new();
    for text in texts {
        let (mut word, mut depth) = (String::new(), 0_usize);
        for letter in text.chars().chain([' ']) {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && (letter.is_whitespace() || letter == ',') {
                tools.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
            } else {
                word.push(letter);
            }
        }
        if !word.is_empty() {
            return Err("a parenthesis in `allowed-tools` isn't closed".to_owned());
        }
    }
    if tools.len() > MAX_TOOLS {
        return Err(format!("`allowed-tools` has more than {MAX_TOOLS} tools"));
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "---\nname: notes\ndescription: Writes notes.\n";

    fn parsed(text: &str) -> Result<Skill, String> {
        parse("skills/notes/SKILL.md", "notes", text)
    }

    #[test]
    fn a_whole_skill_is_read() {
        let text = format!(
            "{HEAD}license: MIT\ncompatibility: git\nmetadata: {{ author: me, version: 1.0 }}\n\
             allowed-tools: Read Bash(git log:*) Bash(a b), Grep\nuser-invocable: true\n---\n\n# Do\n\n---\nit\n"
        );
        let skill = parsed(&text).unwrap();
        assert_eq!((skill.name.as_str(), skill.description.as_str()), ("notes", "Writes notes."));
        assert_eq!(skill.body, "# Do\n\n---\nit\n");
        assert_eq!(skill.allowed_tools, ["Read", "Bash(git log:*)", "Bash(a b)", "Grep"]);
        let listed = parsed(&format!("{HEAD}allowed-tools:\n- Read\n- Grep\n---\nx")).unwrap();
        assert_eq!(listed.allowed_tools, ["Read", "Grep"]);
        let folded = parsed("---\nname: notes\ndescription: >\n  One\n  two.\n\n  Three.\n---\nx").unwrap();
        assert_eq!(folded.description, "One two. Three.");
    }

    #[test]
    fn texts_that_need_quotes_are_named() {
        let with = |text: &str| parsed(&format!("---\nname: notes\ndescription: {text}\n---\nx"));
        for text in [
            "Use when: asked",
            "Fix issue #12 now",
            "`git` tools",
            "*bold* text",
            "[beta] text",
            "\"PDF\" tools",
            "@me does it",
            "100% # sure",
        ] {
            let why = with(text).unwrap_err();
            assert!(why.starts_with("line 3: ") && why.ends_with(": put the whole text in quotes"), "{text}: {why}");
            assert_eq!(with(&format!("'{text}'")).unwrap().description, text);
        }
        let why = with("\"PDF tools").unwrap_err();
        assert!(why.ends_with(": close the quote at the end of the text"), "{why}");
        for (text, description) in [
            (r#""Use \"when\": it's #1 # b""#, "Use \"when\": it's #1 # b"),
            ("'It''s a \"thing\": yes'", "It's a \"thing\": yes"),
            ("Say \"hi\", C#, a:b, it's fine", "Say \"hi\", C#, a:b, it's fine"),
            (">-\n  One: two\n  # three", "One: two # three"),
        ] {
            assert_eq!(with(text).unwrap().description, description, "{text}");
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let long = "x".repeat(1025);
        for (text, why) in [
            ("# Notes\n".to_owned(), "it has no front matter"),
            (String::new(), "it has no front matter"),
            ("--- \nname: notes\n".to_owned(), "has no end"),
            (format!("---\n{}", "a: b\n".repeat(5000)), "longer than 16 KiB"),
            (format!("{HEAD}---\n{}", "x".repeat(129 << 10)), "the limit is 128 KiB"),
            ("---\ndescription: x\n---\nx".to_owned(), "`name` is missing"),
            ("---\nname: notes\n---\nx".to_owned(), "`description` is missing"),
            ("---\nname: 5\ndescription: x\n---\nx".to_owned(), "line 2: `name` isn't a text"),
            (format!("---\nname: notes\ndescription: {long}\n---\nx"), "line 3: `description` has 1025 characters"),
            ("---\nname: notes\ndescription: ''\n---\nx".to_owned(), "line 3: `description` is empty"),
            ("---\nname: Notes\ndescription: x\n---\nx".to_owned(), "may only have"),
            ("---\nname: no--tes\ndescription: x\n---\nx".to_owned(), "may only have"),
            ("---\nname: other\ndescription: x\n---\nx".to_owned(), "its folder is `notes`"),
            ("---\n- a\n---\nx".to_owned(), "isn't a mapping"),
            ("---\nname: notes\nname: notes\n---\nx".to_owned(), "line 3: "),
            ("---\nname: [\n---\nx".to_owned(), "line "),
            (format!("{HEAD}metadata: 5\n---\nx"), "`metadata` isn't a mapping"),
            (format!("{HEAD}allowed-tools: Bash(x\n---\nx"), "isn't closed"),
            (format!("{HEAD}---\n\n \n"), "no instructions"),
        ] {
            let found = parsed(&text).unwrap_err();
            assert!(found.contains(why), "{text:.60}: {found}");
        }
    }
}

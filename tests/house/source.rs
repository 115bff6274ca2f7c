//! The program's own source, read as text.

use std::path::{Path, PathBuf};

/// The attribute of code that is only for tests.
const CFG_TEST: &str = "#[cfg(test)]";

/// The repository's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder of the repository, sorted, with paths relative to it. Empty if the folder doesn't exist.
pub(crate) fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A source file of `src/` without comments, the content of literals, and test code.
pub(crate) struct SourceFile {
    /// Relative to the repository.
    pub(crate) path: PathBuf,
    /// Its module path: `tools`, `bash`. Empty for `lib.rs` and `main.rs`.
    pub(crate) module: Vec<String>,
    /// The source at its original length: omitted parts are replaced by spaces.
    pub(crate) code: String,
}

impl SourceFile {
    /// Creates a file from its path below the repository and its source without comments and literals.
    pub(crate) fn new(path: impl Into<PathBuf>, code: &str) -> SourceFile {
        let path = path.into();
        let mut module: Vec<String> =
            path.with_extension("").iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| last == "mod" || last == "lib" || last == "main");
        SourceFile { path, module, code: blank_tests(code) }
    }
}

/// All source files, except those of modules that exist only in tests.
pub(crate) fn sources() -> Vec<SourceFile> {
    let rust = files("src").into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let (mut all, mut only_tests) = (Vec::new(), Vec::new());
    for path in rust {
        let code = blank_comments_and_literals(&read(&path));
        let file = SourceFile::new(path, &code);
        only_tests.extend(test_modules(&code).map(|name| [file.module.as_slice(), &[name]].concat()));
        all.push(file);
    }
    all.retain(|file| !only_tests.iter().any(|tests: &Vec<String>| file.module.starts_with(tests)));
    all
}

/// The modules with their own files that are declared under `#[cfg(test)]`.
fn test_modules(code: &str) -> impl Iterator<Item = String> {
    code.split(CFG_TEST).skip(1).filter_map(|rest| {
        let (declaration, _) = rest.split_once(';')?;
        let (before, name) = declaration.rsplit_once("mod ")?;
        (!before.contains(['{', '=', '(']) || before.trim().starts_with("pub(")).then(|| name.trim().to_owned())
    })
}

/// Blanks comments and the contents of string and character literals.
fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match comment_or_literal_length(&bytes[at..], at.checked_sub(1).map(|before| bytes[before])) {
            Some(length) => at + length,
            None => {
                at += 1;
                continue;
            }
        };
        out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the comment or literal that starts here, if there is one.
fn comment_or_literal_length(rest: &[u8], before: Option<u8>) -> Option<usize> {
    let find = |needle: &[u8], from: usize| {
        let tail = rest.get(from..).unwrap_or_default();
        tail.windows(needle.len()).position(|window| window == needle).map_or(rest.len(), |at| from + at + needle.len())
    };
    let in_name = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => Some(find(b"\n", 2)),
        [b'/', b'*', ..] => {
            let (mut depth, mut at) = (1, 2);
            while depth > 0 && at < rest.len() {
                match &rest[at..] {
                    [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
                    [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
                    _ => at += 1,
                }
            }
            Some(at.min(rest.len()))
        }
        [b'"', ..] => Some(quoted(rest, b'"')),
        [b'r', b'"' | b'#', ..] if !in_name || before == Some(b'b') => {
            let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
            (rest.get(1 + hashes) == Some(&b'"'))
                .then(|| find(&[b"\"".as_slice(), &b"#".repeat(hashes)].concat(), hashes + 2))
        }
        // A lifetime has no closing quote after its first character.
        [b'\'', b'\\', ..] => Some(quoted(rest, b'\'')),
        [b'\'', first, ..] if *first != b'\'' => {
            let width = std::str::from_utf8(&rest[1..rest.len().min(5)]).map_or_else(
                |error| if error.valid_up_to() > 0 { 1 } else { 4 },
                |text| text.chars().next().map_or(1, char::len_utf8),
            );
            (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
        }
        _ => None,
    }
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Blanks every item under `#[cfg(test)]`.
fn blank_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find(CFG_TEST) {
        let mut depth = 0_usize;
        let mut end = out.len();
        for (at, byte) in out.bytes().enumerate().skip(start + CFG_TEST.len()) {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && matches!(byte, b'}' | b';') {
                end = at + 1;
                break;
            }
        }
        let blank: String = out[start..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

#[test]
fn comments_literals_and_tests_are_blanked() {
    let text = r##"
use crate::job; // crate::cli
/* crate::cli /* nested */ crate::cli */
const A: &str = "crate::cli \" crate::cli"; const B: char = '"'; fn f<'a>(x: &'a str) {}
const C: &str = r#"crate::cli " "#; const D: u8 = b'\''; const E: char = 'ä';
#[cfg(test)]
mod tests { use crate::cli; fn g() { if true { } } }
use crate::plan;
"##;
    let code = blank_tests(&blank_comments_and_literals(text));
    assert_eq!(code.matches("crate::cli").count(), 0, "{code}");
    assert_eq!(code.matches("crate::").count(), 2, "{code}");
    assert_eq!(test_modules("#[cfg(test)]\nmod tests;\nmod a;\n#[cfg(test)]\nuse b;\n").collect::<Vec<_>>(), ["tests"]);
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(code.contains("fn f<'a>(x: &'a str) {}"));
}

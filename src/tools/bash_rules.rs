//! Rules for `bash`: which commands a job allows. They are a convenience, not the boundary: programs have escapes of their
//! own.

use std::path::{Component, Path, PathBuf};

use super::Refusal;
use super::bash_words::{Command, Pipeline, read};

/// How many folders a command may stand in, as far as can be told without running it.
const MAX_FOLDERS: usize = 32;

/// A rule in words.
pub(super) const RULE_FORM: &str =
    "a rule is the words of one plain command; `*` as the last word stands for any further ones";

/// A regular expression that lets every good rule through, and of the bad ones only those that take a shell's reader to
/// tell, such as any with quotes.
pub(super) const RULE_PATTERN: &str = concat!(
    r##"["'\\#\n]|"##,
    r"^(?![ \t]*\*?[ \t]*$)",
    r"(?![ \t]*[A-Za-z_][A-Za-z0-9_]*\+?=)",
    r"(?![^;]*;\s*[^\s*])",
    r"(?!.*\$[A-Za-z0-9_{])",
    r"[^`()<>|&?*]+(\s\*)?\s*$",
);

/// A pipe into one of these is free: its name, its flags, its options with a value. None may name a file, for `sort` and
/// `uniq` can write one.
const FILTERS: [(&str, &str, &str); 5] = [
    ("head", "qvz", "nc"),
    ("tail", "qvz", "nc"),
    ("wc", "lcwmL", ""),
    ("sort", "rnuhVfbdigMRsz", "kt"),
    ("uniq", "cdDuiz", "fsw"),
];

/// What a job allows.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    words: Vec<String>,
    /// Whether any further words may follow.
    open: bool,
}

impl Rules {
    /// Reads patterns.
    ///
    /// # Errors
    /// The index of the first bad pattern, and what is wrong with it.
    pub(super) fn new(patterns: &[String]) -> Result<Self, (usize, String)> {
        let read = patterns.iter().enumerate().map(|(at, text)| pattern(text).map_err(|why| (at, why)));
        Ok(Self { patterns: read.collect::<Result<_, _>>()? })
    }

    /// The patterns and what is free, for people and models.
    pub(super) fn describe(&self) -> String {
        let patterns: Vec<_> = self.patterns.iter().map(|pattern| format!("`{}`", pattern.text)).collect();
        format!(
            "{} (`*`: any further words), alone or joined by `|`, `&&`, `||` and `;`. Also `cd` beneath the workspace, \
             `2>&1`, `>/dev/null`, and pipes into head, tail, wc, sort and uniq without files. No variables, wildcards, \
             substitutions, assignments, loops, other redirections or background jobs",
            if patterns.is_empty() { "no commands".to_owned() } else { patterns.join(", ") }
        )
    }

    /// The command as it is to be run, if every part of it is allowed.
    pub(super) fn check(&self, command: &str, root: &Path) -> Result<String, Refusal> {
        let denied = |why: String| Refusal(format!("not allowed: {why}. Allowed: {}.", self.describe()));
        let mut script = read(command).map_err(denied)?;
        let mut reached = Folders::at(root);
        for pipeline in &mut script.pipelines {
            let entered = reached.before().to_vec();
            for (index, command) in pipeline.commands.iter().enumerate() {
                if is_cd(command) || (index > 0 && is_filter(command)) {
                    continue;
                }
                let shown = || command.words.join(" ").chars().take(200).collect::<String>();
                if !self.patterns.iter().any(|pattern| pattern.matches(&command.words)) {
                    return Err(denied(format!("`{}` matches no rule", shown())));
                }
                // `./build` means another program in another folder.
                let by_path = command.words[0].contains('/') && !command.words[0].starts_with('/');
                if by_path && entered.iter().any(|folder| folder != root) {
                    return Err(denied(format!(
                        "`{}` is named by its path from the workspace, but follows a `cd`",
                        shown()
                    )));
                }
            }
            reached.pass(pipeline, root).map_err(denied)?;
        }
        Ok(script.write())
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let (fixed, open) = match text.trim().strip_suffix('*') {
        Some("") => {
            return Err("it allows every command; leave `allow` out to say that".to_owned());
        }
        Some(fixed) if fixed.ends_with([' ', '\t']) => (fixed, true),
        _ => (text, false),
    };
    let mut script = read(fixed).map_err(|why| {
        if why.contains("wildcard `*`") {
            "`*` can only be the last word, by itself".to_owned()
        } else {
            format!("it holds {why}")
        }
    })?;
    let plain = script.pipelines.len() == 1 && script.pipelines[0].is_plain();
    match script.pipelines.pop().and_then(|mut pipeline| pipeline.commands.pop()) {
        Some(command) if plain => Ok(Pattern { text: text.trim().to_owned(), words: command.words, open }),
        _ => Err("it must be one plain command".to_owned()),
    }
}

impl Pattern {
    fn matches(&self, words: &[String]) -> bool {
        if self.open { words.starts_with(&self.words) } else { words == self.words }
    }
}

fn is_cd(command: &Command) -> bool {
    command.words.first().is_some_and(|name| name == "cd")
}

/// The folders that a command can stand in, by how the one before it ended.
struct Folders {
    succeeded: Vec<PathBuf>,
    failed: Vec<PathBuf>,
    /// What stands before the next command.
    joint: &'static str,
}

impl Folders {
    fn at(root: &Path) -> Self {
        Self { succeeded: vec![root.to_owned()], failed: Vec::new(), joint: ";" }
    }

    /// Where the next command can be.
    fn before(&mut self) -> &[PathBuf] {
        match self.joint {
            "&&" => &self.succeeded,
            "||" => &self.failed,
            _ => {
                let failed = std::mem::take(&mut self.failed);
                add(&mut self.succeeded, failed);
                &self.succeeded
            }
        }
    }

    /// Follows a pipeline. Every `cd` in it is made one that goes the way of the links on disk, as this does: a shell
    /// takes `link/..` for the folder that the link lies in.
    fn pass(&mut self, pipeline: &mut Pipeline, root: &Path) -> Result<(), String> {
        let before = self.before().to_vec();
        let mut after = before.clone();
        let alone = pipeline.commands.len() == 1;
        for command in pipeline.commands.iter_mut().filter(|command| is_cd(command)) {
            let reached = enter(command, &before, root)?;
            // In a pipe it is a process of its own that changes its folder.
            if alone {
                after = reached;
            }
        }
        let (succeeded, failed) = if pipeline.negated { (before, after) } else { (after, before) };
        match self.joint {
            "&&" => {
                self.succeeded = succeeded;
                add(&mut self.failed, failed);
            }
            "||" => {
                add(&mut self.succeeded, succeeded);
                self.failed = failed;
            }
            _ => (self.succeeded, self.failed) = (succeeded, failed),
        }
        self.joint = pipeline.then;
        if self.succeeded.len() + self.failed.len() > MAX_FOLDERS { Err("too many `cd`".to_owned()) } else { Ok(()) }
    }
}

fn add(folders: &mut Vec<PathBuf>, more: Vec<PathBuf>) {
    for folder in more {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
}

/// Where a `cd` leads from each of the folders.
fn enter(command: &mut Command, from: &[PathBuf], root: &Path) -> Result<Vec<PathBuf>, String> {
    let [_, target] = command.words.as_slice() else { return Err("`cd` without exactly one folder".to_owned()) };
    if target.is_empty() || target.starts_with('-') {
        return Err(format!("`cd {target}`"));
    }
    let mut reached = Vec::new();
    for folder in from {
        let joined = folder.join(target);
        // What doesn't exist yet can't be a link.
        let folder = joined.canonicalize().unwrap_or_else(|_| without_dots(&joined));
        if !folder.starts_with(root) {
            return Err(format!("`cd {target}` (it may lead out of the workspace)"));
        }
        add(&mut reached, vec![folder]);
    }
    command.words.insert(1, "-P".to_owned());
    Ok(reached)
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Whether a command only passes on a part of its standard input.
fn is_filter(command: &Command) -> bool {
    let Some((name, options)) = command.words.split_first() else { return false };
    let Some((_, flags, valued)) = FILTERS.iter().find(|(known, ..)| known == name) else { return false };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let Some(short) = option.strip_prefix('-') else { return false };
        // `-20`, or flags and then at most one option, whose value is the rest of the word or the next word.
        let count = (*name == "head" || *name == "tail") && short.bytes().all(|byte| byte.is_ascii_digit());
        let rest = short.trim_start_matches(|flag| flags.contains(flag));
        let fine = match rest.chars().next() {
            _ if short.is_empty() => false,
            None => true,
            Some(letter) if valued.contains(letter) => rest.len() > 1 || options.next().is_some(),
            Some(_) => count,
        };
        if !fine {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests;

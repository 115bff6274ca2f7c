//! `glob`: finds paths by pattern, newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file_tool::{FileCall, FileTool};
use super::input::check_pattern_length;
use super::tool::Builtin;
use crate::message::ToolError;
use crate::workspace::Workspace;
use crate::workspace::walk::{FileWalk, literal_brackets};

pub(super) const BUILTIN: Builtin = TOOL.builtin("pattern", |_| Ok(Box::new(TOOL)));
const TOOL: FileTool<GlobInput> = FileTool {
    name: "glob",
    description: "Finds files whose path matches a glob, most recently modified first. Excludes files that .gitignore and similar \
     files ignore, and hidden files unless the pattern names them (`.github/**`). Without `**`, the pattern also \
     matches folders, which end in `/`: `*` lists a folder.",
    reads_only: true,
    reads_content: false,
    run: find,
};

/// The most paths that are shown.
const MAX_PATHS: usize = 1000;
/// The greatest length of all shown paths together, in bytes.
const MAX_BYTES: usize = 48_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GlobInput {
    /// Glob relative to `path`, such as `src/**/*.rs` or `*.{md,txt}`. `*` and `?` match within a name, `**/` matches any
    /// folders, and a name such as `[id]` also itself.
    pattern: String,
    /// Folder to search. Default: the workspace.
    #[serde(default)]
    path: Option<String>,
}

fn find(input: &GlobInput, FileCall { workspace, limits, .. }: &FileCall) -> Result<String, ToolError> {
    let base = input.path.as_deref().unwrap_or(".");
    let (base, pattern) = split_literal_prefix(base, &input.pattern, workspace)?;
    let matcher = PathMatcher::new(&pattern)?;
    let include_folders = !pattern.contains("**");
    let include_hidden = matches_hidden(&pattern);
    let walk = FileWalk {
        workspace,
        stop_reason: &|| limits.stop_reason(),
        base: workspace.resolve_existing(&base)?,
        include_hidden,
        filter: None,
    };
    if walk.base.kind() != Some(FileType::Directory) {
        return Err(ToolError(format!("`{}` is not a folder", walk.base.path.display())));
    }
    let mut found = NewestMatches::default();
    let stopped = walk.walk(|entry| {
        let path = &entry.path;
        let base = &walk.base.path;
        let from_base = if base == Path::new(".") { path } else { path.strip_prefix(base).unwrap_or(path) };
        if (!entry.is_folder || include_folders)
            && matcher.is_match(from_base)
            && let Ok(stat) = entry.stat()
        {
            // The types differ between systems.
            #[allow(clippy::unnecessary_cast)]
            let modified = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            found.add(GlobMatch { modified, path: Reverse(path.clone()), is_folder });
        }
        Ok(())
    })?;
    Ok(found.render(stopped, include_hidden))
}

/// A match. The newest is the greatest; among equally old ones, the one whose path comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GlobMatch {
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    path: Reverse<PathBuf>,
    is_folder: bool,
}

/// The newest matches, in constant memory.
#[derive(Default)]
struct NewestMatches {
    kept: BinaryHeap<Reverse<GlobMatch>>,
    count: usize,
}

impl NewestMatches {
    fn add(&mut self, found: GlobMatch) {
        self.count += 1;
        self.kept.push(Reverse(found));
        if self.kept.len() > MAX_PATHS {
            self.kept.pop();
        }
    }

    fn render(self, stopped: Option<&str>, include_hidden: bool) -> String {
        let mut text = String::new();
        let mut shown = 0;
        for Reverse(found) in self.kept.into_sorted_vec() {
            let path = found.path.0.to_string_lossy();
            if text.len() + path.len() > MAX_BYTES {
                break;
            }
            text.push_str(&path);
            text.push_str(if found.is_folder { "/\n" } else { "\n" });
            shown += 1;
        }
        if let Some(why) = stopped {
            text.push_str(&format!("(stopped: {why}; there may be more matches)"));
        } else if self.count == 0 {
            let excluded = if include_hidden { "ignored files" } else { "hidden and ignored files" };
            text.push_str(&format!("no matches ({excluded} are excluded)"));
        } else if shown < self.count {
            text.push_str(&format!("({} older matches not shown; use a narrower pattern)", self.count - shown));
        } else {
            text.pop();
        }
        text
    }
}

/// Matches paths. Brackets also match themselves: frameworks have folders such as `[slug]`.
pub(crate) struct PathMatcher(Vec<GlobMatcher>);

impl PathMatcher {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It isn't valid.
    pub(crate) fn new(pattern: &str) -> Result<Self, ToolError> {
        let compile = |pattern: &str| {
            GlobBuilder::new(pattern).literal_separator(true).build().map(|glob| glob.compile_matcher())
        };
        let literal = literal_brackets(pattern).and_then(|pattern| compile(&pattern).ok());
        match compile(pattern) {
            Ok(matcher) => Ok(Self([matcher].into_iter().chain(literal).collect())),
            Err(error) => match literal {
                Some(literal) => Ok(Self(vec![literal])),
                None => Err(ToolError(format!("invalid pattern: {error}"))),
            },
        }
    }

    /// Whether a path matches.
    pub(crate) fn is_match(&self, path: &Path) -> bool {
        self.0.iter().any(|matcher| matcher.is_match(path))
    }
}

/// Moves the literal folders at the beginning of a pattern into the path, so that only these are walked.
pub(crate) fn split_literal_prefix(
    base: &str,
    pattern: &str,
    workspace: &Workspace,
) -> Result<(String, String), ToolError> {
    if pattern.is_empty() {
        return Err(ToolError::new("`pattern` is empty"));
    }
    check_pattern_length("pattern", pattern)?;
    let is_absolute = pattern.starts_with('/');
    let pattern = if is_absolute { workspace.relative(pattern)? } else { PathBuf::from(pattern) };
    let mut base = if is_absolute { PathBuf::new() } else { PathBuf::from(base) };
    let mut rest = PathBuf::new();
    let mut parts = pattern.components().filter(|part| !matches!(part, Component::CurDir)).peekable();
    while let Some(part) = parts.next() {
        let name = part.as_os_str().to_string_lossy();
        let is_literal = !name.contains(['*', '?', '[', '{', '\\']);
        if matches!(part, Component::ParentDir) && !rest.as_os_str().is_empty() {
            return Err(ToolError::new("invalid pattern: `..` after a wildcard"));
        }
        if is_literal && rest.as_os_str().is_empty() && parts.peek().is_some() {
            base.push(part);
        } else {
            rest.push(part);
        }
    }
    let base = if base.as_os_str().is_empty() { PathBuf::from(".") } else { base };
    let rest = if rest.as_os_str().is_empty() { "*".into() } else { rest.to_string_lossy().into_owned() };
    Ok((base.to_string_lossy().into_owned(), rest))
}

/// Whether a pattern names hidden files.
pub(crate) fn matches_hidden(pattern: &str) -> bool {
    pattern.starts_with('.') || ["/.", "{.", ",."].iter().any(|dot| pattern.contains(dot))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use crate::tools::toolbox::tests::ToolHarness;

    /// Files with ages in minutes.
    fn harness(files: &[(&str, u64)]) -> ToolHarness {
        let harness = ToolHarness::new(&["glob"]);
        for (path, age) in files {
            harness.write(path, "");
            let file = std::fs::File::open(harness.path(path)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 60)).unwrap();
        }
        harness
    }

    async fn find(harness: &ToolHarness, pattern: &str) -> String {
        harness.ok("glob", &serde_json::json!({ "pattern": pattern }).to_string()).await
    }

    #[tokio::test]
    async fn the_newest_come_first_and_ignored_files_are_excluded() {
        let harness = harness(&[
            ("a.rs", 3),
            ("src/b.rs", 1),
            ("src/x/c.rs", 2),
            ("target/d.rs", 0),
            ("runs/e.rs", 0),
            (".hid/f.rs", 0),
        ]);
        harness.write(".gitignore", "target/\n");
        harness.write(".git/g.rs", "");
        assert_eq!(find(&harness, "**/*.rs").await, "src/b.rs\nsrc/x/c.rs\na.rs");
        assert_eq!(find(&harness, "*.rs").await, "a.rs");
        assert_eq!(find(&harness, "src/**/*.{rs,md}").await, "src/b.rs\nsrc/x/c.rs");
        assert_eq!(find(&harness, "src/x/c.rs").await, "src/x/c.rs");
        assert_eq!(find(&harness, ".hid/*").await, ".hid/f.rs");
        assert_eq!(find(&harness, "target/*.rs").await, "target/d.rs", "what is named is searched, ignored or not");
        assert_eq!(find(&harness, "*.py").await, "no matches (hidden and ignored files are excluded)");
        assert_eq!(find(&harness, ".*.py").await, "no matches (ignored files are excluded)");
        let absolute = harness.path("src/*.rs");
        assert_eq!(find(&harness, absolute.to_str().unwrap()).await, "src/b.rs");
    }

    #[tokio::test]
    async fn a_star_lists_a_folder() {
        let harness = harness(&[("a.rs", 3), ("src/b.rs", 1)]);
        let mut names: Vec<_> = find(&harness, "*").await.lines().map(String::from).collect();
        names.sort();
        assert_eq!(names, ["a.rs", "src/"]);
        assert_eq!(harness.ok("glob", r#"{"pattern": "*", "path": "src"}"#).await, "src/b.rs");
    }

    #[tokio::test]
    async fn nothing_outside_is_listed() {
        let harness = harness(&[("a.rs", 3)]);
        std::os::unix::fs::symlink("/etc", harness.path("etc")).unwrap();
        assert_eq!(find(&harness, "**/*").await.lines().filter(|line| line.starts_with("etc/")).count(), 0);
        for (pattern, path) in
            [("etc/*", "."), ("../*", "."), ("*", ".."), ("/etc/*", "."), ("*", "/etc"), ("*", "etc"), ("*/../..", ".")]
        {
            harness.refused("glob", &serde_json::json!({ "pattern": pattern, "path": path }).to_string()).await;
        }
        assert!(harness.refused("glob", r#"{"pattern": "a{b"}"#).await.contains("invalid pattern"));
        let long = serde_json::json!({ "pattern": "*a".repeat(10_000) }).to_string();
        assert!(harness.refused("glob", &long).await.contains("longer than 16,000 bytes"));
    }

    #[tokio::test]
    async fn matches_beyond_the_limit_are_counted() {
        let files: Vec<_> = (0..1100).map(|number| format!("f/{number}.txt")).collect();
        let harness = harness(&files.iter().map(|file| (file.as_str(), 1)).collect::<Vec<_>>());
        let text = find(&harness, "f/*.txt").await;
        assert_eq!(text.lines().count(), 1001);
        assert!(text.ends_with("(100 older matches not shown; use a narrower pattern)"));
    }

    #[tokio::test]
    async fn names_with_brackets_are_found() {
        let harness = harness(&[("app/[slug]/page.tsx", 1), ("app/s/page.tsx", 2), ("app/[...all]/[[x]].ts", 3)]);
        for (pattern, found) in [
            ("app/[slug]/*.tsx", "app/[slug]/page.tsx\napp/s/page.tsx"),
            ("**/[slug]/page.tsx", "app/[slug]/page.tsx\napp/s/page.tsx"),
            ("app/[...all]/[[x]].ts", "app/[...all]/[[x]].ts"),
            ("app/\\[slug\\]/*", "app/[slug]/page.tsx"),
            ("app/[a-z]/*", "app/s/page.tsx"),
            ("app/{[slug],t}/*.tsx", "app/[slug]/page.tsx\napp/s/page.tsx"),
        ] {
            assert_eq!(find(&harness, pattern).await, found, "{pattern}");
        }
        let path = r#"{"pattern": "*", "path": "app/[slug]"}"#;
        assert_eq!(harness.ok("glob", path).await, "app/[slug]/page.tsx");
    }
}

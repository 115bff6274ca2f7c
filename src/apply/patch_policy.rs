//! What the changes of a run may contain to be published, checked at the call, at the end of the run and before publishing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::patch_reader::{self, FilePatch};
use crate::event::{Change, WorkspaceChanged};
use crate::outputs::PatchRules;
use crate::redaction::MARKER_PREFIX;
use crate::sandbox::protected_paths::default_protected;
use crate::text::folded_path::FoldedPath;
use crate::text::format_size;

/// The file that names submodules.
const SUBMODULES: &str = ".gitmodules";

/// Checks the changes of a run against the rules of an output.
///
/// # Errors
/// Says what can't be published, and why.
pub fn check_patch(rules: &PatchRules, changed: &WorkspaceChanged) -> Result<(), String> {
    let is_binary = |change: &&Change| change.binary.is_some();
    if let Some(change) = changed.changes.iter().find(is_binary).filter(|_| !rules.binary) {
        let Change { path, binary, .. } = change;
        let size = format_size(binary.unwrap_or_default());
        return Err(binary_refusal(&format!("`{path}` is a binary file ({size})")));
    }
    if let Some(why) = &changed.incomplete {
        return Err(format!("the changes can't be published, because their patch isn't complete: {why}"));
    }
    if changed.changes.is_empty() {
        return Err("this run has changed no file, so there is nothing to publish".to_owned());
    }
    let count = changed.total.unwrap_or(changed.changes.len() as u64);
    if count > u64::from(rules.max_files) {
        return Err(format!("{count} files have changed, and at most {} may", rules.max_files));
    }
    let bytes = changed.patch.len() as u64;
    if bytes > rules.max_bytes {
        return Err(format!("the patch has {bytes} bytes, and at most {} are allowed", rules.max_bytes));
    }
    if changed.patch.contains(MARKER_PREFIX) {
        return Err("the patch has the placeholder of a masked secret".to_owned());
    }
    let sections = patch_reader::read(&changed.patch)
        .map_err(|error| format!("line {} of the patch: {}", error.line, error.why))?;
    let globs = globs(&rules.paths)?;
    let allowed: Vec<FoldedPath> = rules.allow_changes.iter().map(|path| FoldedPath::new(Path::new(path))).collect();
    for section in &sections {
        check_path(&section.path, &globs, rules, &allowed)?;
        check_link(section)?;
        // A record can come from anywhere, and its list can say something else than its patch.
        if section.is_binary() && !rules.binary {
            return Err(binary_refusal(&format!("`{}` is a binary file", section.path.display())));
        }
    }
    let in_patch = |path: &str| sections.iter().any(|section| section.path == Path::new(path));
    match changed.changes.iter().find(|change| !in_patch(&change.path)) {
        Some(change) => Err(format!("the patch lacks `{}`", change.path)),
        None => Ok(()),
    }
}

fn binary_refusal(what: &str) -> String {
    format!("{what}, and the output takes only text: the job can allow it with `binary: true`")
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| format!("`paths`: {error}"))?);
    }
    set.build().map_err(|error| format!("`paths`: {error}"))
}

fn check_path(path: &Path, globs: &GlobSet, rules: &PatchRules, allowed: &[FoldedPath]) -> Result<(), String> {
    let shown = path.display();
    if path.to_str().is_none() {
        return Err(format!("`{shown}` isn't UTF-8, which forges need"));
    }
    if !rules.paths.is_empty() && !globs.is_match(path) {
        return Err(format!("`{shown}` may not change: the output allows only {}", rules.paths.join(", ")));
    }
    let folded = FoldedPath::new(path);
    if folded == FoldedPath::new(Path::new(SUBMODULES)) {
        return Err(format!("`{shown}` names submodules, which are never published"));
    }
    let protected = default_protected().find(|known| folded.is_within(&FoldedPath::new(Path::new(known))));
    match protected.filter(|_| !allowed.iter().any(|allowed| folded.is_within(allowed))) {
        Some(known) => {
            Err(format!("`{shown}` is in `{known}`, which is protected: the job's `allow_changes` doesn't name it"))
        }
        None => Ok(()),
    }
}

/// A link must be new and lead to something in the tree.
fn check_link(section: &FilePatch) -> Result<(), String> {
    if !section.is_link() {
        return Ok(());
    }
    let shown = section.path.display();
    let target = section.apply_exactly(b"").filter(|_| section.old.is_none());
    let Some(target) = target else {
        return Err(format!("`{shown}` is a link that changed, which is never published"));
    };
    let mut depth = section.path.components().count() as i64 - 1;
    for part in Path::new(OsStr::from_bytes(&target)).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return Err(format!("`{shown}` is a link out of the tree")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ChangeKind;

    fn rules() -> PatchRules {
        PatchRules { paths: Vec::new(), max_files: 2, max_bytes: 10_000, binary: false, allow_changes: Vec::new() }
    }

    fn changed(path: &str, mode: &str, content: &str) -> WorkspaceChanged {
        let patch = format!(
            "diff --git a/{path} b/{path}\nnew file mode {mode}\nindex {}..{}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n\
             +{content}\n\\ No newline at end of file\n",
            "0".repeat(40),
            "1".repeat(40)
        );
        let change = Change {
            path: path.into(),
            change: ChangeKind::Added,
            lines_added: Some(1),
            lines_removed: None,
            binary: None,
        };
        WorkspaceChanged { changes: vec![change], patch, ..WorkspaceChanged::default() }
    }

    #[test]
    fn ordinary_changes_can_be_published() {
        assert_eq!(check_patch(&rules(), &changed("docs/a.md", "100644", "text")), Ok(()));
        assert_eq!(check_patch(&rules(), &changed("docs/link", "120000", "../README.md")), Ok(()));
        let only_docs = PatchRules { paths: vec!["docs/**".to_owned()], ..rules() };
        assert_eq!(check_patch(&only_docs, &changed("docs/x/a.md", "100644", "text")), Ok(()));
        let release = PatchRules { allow_changes: vec![".github/workflows/release.yml".to_owned()], ..rules() };
        assert_eq!(check_patch(&release, &changed(".github/workflows/release.yml", "100644", "on: push")), Ok(()));
    }

    #[test]
    fn binary_files_need_the_permission_of_the_output() {
        let content = crate::git::binary_patch::encode(b"\0");
        let name = crate::text::hex(&crate::git::objects::object_id(b"\0", false));
        let patch =
            format!("diff --git a/a.png b/a.png\nnew file mode 100644\nindex {}..{name}\n{content}", "0".repeat(40));
        let mut changed = changed("a.png", "100644", "");
        changed.patch = patch;
        let allowed = PatchRules { binary: true, ..rules() };
        // The list of a record can lack the size.
        for (size, why) in
            [(Some(12_300), "`a.png` is a binary file (13 kB), and"), (None, "`a.png` is a binary file, and")]
        {
            changed.changes[0].binary = size;
            let refused = check_patch(&rules(), &changed).unwrap_err();
            assert!(refused.starts_with(why) && refused.ends_with("with `binary: true`"), "{refused}");
            assert_eq!(check_patch(&allowed, &changed), Ok(()));
        }
        let small = PatchRules { max_bytes: 10, ..allowed };
        assert!(check_patch(&small, &changed).unwrap_err().contains("at most 10 are allowed"));
        // Where no output takes binary files, the run has left it out.
        changed.incomplete = Some("left out".to_owned());
        changed.changes[0].binary = Some(1);
        assert!(check_patch(&rules(), &changed).unwrap_err().starts_with("`a.png` is a binary file (1 kB)"));
    }

    #[test]
    fn what_could_harm_is_refused_with_its_reason() {
        let only_docs = PatchRules { paths: vec!["docs/*".to_owned()], ..rules() };
        let release = PatchRules { allow_changes: vec![".github/workflows/release.yml".to_owned()], ..rules() };
        let none = PatchRules { max_files: 0, ..rules() };
        let small = PatchRules { max_bytes: 10, ..rules() };
        let incomplete = WorkspaceChanged { incomplete: Some("cut".into()), ..changed("a", "100644", "text") };
        for (rules, changed, why) in [
            (&rules(), WorkspaceChanged::default(), "changed no file"),
            (&rules(), incomplete, "isn't complete: cut"),
            (&none, changed("a", "100644", "text"), "1 files have changed"),
            (&small, changed("a", "100644", "text"), "at most 10"),
            (&rules(), changed("a", "100644", "[masked:TOKEN]"), "masked secret"),
            (&only_docs, changed("docs/x/a.md", "100644", "text"), "allows only docs/*"),
            (&rules(), changed(".github/workflows/ci.yml", "100644", "on: push"), "which is protected"),
            (&rules(), changed(".GitHub/workflows/ci.yml", "100644", "on: push"), "which is protected"),
            (&rules(), changed("GITHUB~1/workflows/ci.yml", "100644", "on: push"), "which is protected"),
            (&release, changed(".github/workflows/ci.yml", "100644", "on: push"), "which is protected"),
            (&rules(), changed(".gitmodules", "100644", "x"), "submodules"),
            (&rules(), changed("docs/link", "120000", "../../etc"), "out of the tree"),
            (&rules(), changed("link", "120000", "/etc/passwd"), "out of the tree"),
        ] {
            let found = check_patch(rules, &changed).unwrap_err();
            assert!(found.contains(why), "{why}: {found}");
        }
    }
}

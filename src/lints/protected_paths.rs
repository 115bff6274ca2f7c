//! The paths of `protect` and `allow_changes`.

use std::collections::HashMap;
use std::path::{Component, Path};

use crate::diagnostic::{Diagnostic, Severity, rule};
use crate::git::is_dot_git;
use crate::job::{MAX_PATHS, PROTECTED_FORM};
use crate::sandbox::protected_paths::{is_job_name, may_be_protected};
use crate::yaml::Spanned;

use super::{Lint, LintContext, listed_twice};

/// Checks the paths that a job protects, or allows to change.
pub(super) const LINT: Lint =
    Lint { rules: &[rule!(Error "bad-protected-path"), rule!(Warning "duplicate-path")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    for paths in [&job.protect, &job.allow_changes] {
        if let Some(path) = paths.get(MAX_PATHS) {
            let message = format!("more than {MAX_PATHS} paths are listed");
            let help = "list their folders instead";
            findings.push(Diagnostic::error("bad-protected-path", path.place(), message).help(help));
        }
        let mut earlier: HashMap<&str, &Spanned<String>> = HashMap::new();
        for path in paths {
            if let Some(message) = path_error(&path.value) {
                findings.push(Diagnostic::error("bad-protected-path", path.place(), message).help(PROTECTED_FORM));
            } else if let Some(first) = earlier.insert(path.value.trim_end_matches('/'), path) {
                let place = first.place();
                findings.push(listed_twice(Severity::Warning, "duplicate-path", &path.value, path.place(), place));
            }
        }
    }
    let protected: Vec<&Path> = job.protect.iter().map(|path| Path::new(path.value.as_str())).collect();
    for path in job.allow_changes.iter().filter(|path| path_error(&path.value).is_none()) {
        let allowed = Path::new(path.value.as_str());
        if !protected.iter().any(|protected| allowed.starts_with(protected))
            && !may_be_protected(allowed)
            && !is_job_name(allowed)
        {
            let message = format!("`{}` isn't protected, so there is nothing to allow", path.value);
            findings.push(
                Diagnostic::error("bad-protected-path", path.place(), message)
                    .help("remove it, or name a path that is protected, such as `.github/workflows/release.yml`"),
            );
        }
    }
}

/// Why an entry isn't a path of the workspace that can be protected.
fn path_error(entry: &str) -> Option<String> {
    let path = Path::new(entry);
    let mut parts = path.components().filter(|part| !matches!(part, Component::CurDir)).peekable();
    if entry.contains('\0') || parts.peek().is_none() {
        return Some("this isn't a path below the workspace".to_owned());
    }
    if entry.contains(['*', '?', '[', ']', '{', '}', '\\']) {
        return Some(format!("`{entry}` has a wildcard, and only plain paths can be protected"));
    }
    if parts.clone().any(|part| !matches!(part, Component::Normal(_))) {
        return Some(format!("`{entry}` isn't below the workspace"));
    }
    parts
        .any(|part| is_dot_git(part.as_os_str()))
        .then(|| format!("`{entry}` is in a git folder; the key `git` decides what may change there"))
}

//! A look at the workspace before anything can change it.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::index::{Index, Tracked};
use super::marks::{Kind, Marks, Time, id};
use super::pace::Pace;
use super::stored::{Content, Known, Whole, Writing};
use super::walk::{MOST_FILES, Seen, Walk};
use super::{LARGEST, Looker, hex, names_secret, object_name};
use crate::mask::Mask;
use crate::message::counted;
use crate::sandbox::git::Repository;
use crate::sandbox::protected::is_dot_git;
use crate::tools::beneath;

/// How much of files may be read to see whether they are those of the repository, in bytes.
const MOST_READ: u64 = 256 << 20;
/// How much may be kept, in bytes.
const MOST_KEPT: u64 = 32 << 20;

struct Look<'a> {
    mask: &'a Mask,
    repository: Option<Repository>,
    index: HashMap<PathBuf, Tracked>,
    index_written: Time,
    began: Time,
    read: u64,
    kept: u64,
    /// How many files have nothing kept of them for lack of room.
    without: usize,
    /// How many files have a secret in their names.
    unnamed: usize,
    out: Writing,
}

/// Looks, and writes what is to be seen into the file `name` of the run's record.
pub(super) fn take(looker: &Looker, name: &Path, pace: &Pace) -> io::Result<()> {
    let workspace = &looker.workspace;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = (i64::try_from(began.as_secs()).unwrap_or(i64::MAX), i64::from(began.subsec_nanos()));
    let mut repository = Repository::of(workspace.root());
    let index = repository.as_ref().and_then(|repository| Index::of(repository, workspace.root()));
    if index.is_none() {
        repository = None;
    }
    let index = index.unwrap_or_default();
    let out = Writing::begin(&looker.record)?;
    let mut look = Look {
        mask: &looker.mask,
        repository,
        index: index.files,
        index_written: index.written,
        began,
        read: 0,
        kept: 0,
        without: 0,
        unnamed: 0,
        out,
    };
    let mut failed = Ok(());
    let mut walk = Walk::first(looker, pace);
    walk.run(workspace.folder(), &mut |seen| {
        if failed.is_ok() {
            failed = look.file(&seen);
        }
    });
    failed?;
    let Walk { cut, found, too_deep, passed, .. } = walk;
    if pace.in_haste() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "the run ends"));
    }
    if pace.is_over() {
        // Half of it would show as if the other half hadn't changed.
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the workspace has too many files to be looked at in time",
        ));
    }
    look.left_over(looker, cut.as_deref())?;
    let mut gaps = Vec::new();
    if let Some(cut) = &cut {
        gaps.push(format!(
            "files that come after `{}` weren't looked at: there are more than {MOST_FILES}",
            cut.display()
        ));
    }
    if look.without > 0 {
        gaps.push(format!("too little room was left to keep what {} held", counted(look.without as u64, "file")));
    }
    if look.unnamed > 0 {
        let files = counted(look.unnamed as u64, "file");
        gaps.push(format!("{files} with a secret in the name or the path can't be followed"));
    }
    if too_deep {
        gaps.push(format!("folders with more than {} others around them weren't looked at", super::walk::DEEPEST));
    }
    let repository = look.repository.map(|repository| (repository.common, repository.sha256));
    look.out.end(Whole::new(repository, cut.as_deref(), gaps, found, &passed), name)
}

impl Look<'_> {
    fn file(&mut self, seen: &Seen<'_>) -> io::Result<()> {
        let tracked = self.index.remove(&seen.path);
        if names_secret(self.mask, &seen.path) {
            self.unnamed += 1;
            return Ok(());
        }
        let (content, text) = self.content(seen, tracked.as_ref());
        self.out.file(&seen.path, Known::new(Some(seen.marks), content, self.began), &text)
    }

    fn content(&mut self, seen: &Seen<'_>, tracked: Option<&Tracked>) -> (Content, String) {
        let nothing = |content| (content, String::new());
        if seen.marks.kind == Kind::Link {
            let Ok(target) = readlinkat(seen.folder, seen.name, Vec::new()) else { return nothing(Content::Unknown) };
            let sum = hex(&Sha256::digest(target.as_bytes()));
            let target = target.to_string_lossy();
            return nothing(Content::Link(self.mask.text(&target).into_owned(), sum));
        }
        if let Some(tracked) = tracked.filter(|tracked| tracked.is(&seen.marks, self.index_written)) {
            return nothing(Content::Object(hex(&tracked.object)));
        }
        if seen.marks.size > LARGEST {
            return nothing(Content::Unknown);
        }
        if self.read.saturating_add(seen.marks.size) > MOST_READ {
            self.without += 1;
            return nothing(Content::Unknown);
        }
        self.read += seen.marks.size;
        let Some(bytes) = read(seen) else { return nothing(Content::Unknown) };
        let sha256 = self.repository.as_ref().is_some_and(|repository| repository.sha256);
        if let Some(tracked) = tracked.filter(|tracked| tracked.object == object_name(&bytes, sha256)) {
            return nothing(Content::Object(hex(&tracked.object)));
        }
        let sum = hex(&Sha256::digest(&bytes));
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let Some(text) = text else { return nothing(Content::Sum(sum)) };
        if self.kept.saturating_add(text.len() as u64) > MOST_KEPT {
            self.without += 1;
            return nothing(Content::Sum(sum));
        }
        let shown = self.mask.text(&text).into_owned();
        self.kept += shown.len() as u64;
        (Content::Text { length: shown.len(), sum, masked: shown != text }, shown)
    }

    /// What git knows of and the walk didn't come by: it is ignored, or it isn't there.
    fn left_over(&mut self, looker: &Looker, cut: Option<&Path>) -> io::Result<()> {
        let workspace = &looker.workspace;
        let hidden = workspace.passed_over();
        let mut left: Vec<(PathBuf, Tracked)> = self.index.drain().collect();
        left.retain(|(path, _)| {
            !hidden.holds(path) && !path.iter().any(is_dot_git) && cut.is_none_or(|cut| path.as_path() <= cut)
        });
        left.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (path, tracked) in left {
            if names_secret(self.mask, &path) {
                self.unnamed += 1;
                continue;
            }
            let (Some(name), parent) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else { continue };
            let stat = beneath::folder(workspace.folder(), parent)
                .ok()
                .and_then(|folder| Some((statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?, folder)));
            if stat.as_ref().is_some_and(|(stat, _)| looker.outputs.contains(&id(stat))) {
                continue;
            }
            let marks = stat.as_ref().and_then(|(stat, _)| Marks::of(stat));
            match (marks, &stat) {
                (Some(marks), Some((_, folder))) => {
                    let seen = Seen { path: path.clone(), marks, folder: std::os::fd::AsFd::as_fd(folder), name };
                    let (content, text) = self.content(&seen, Some(&tracked));
                    self.out.file(&path, Known::new(Some(marks), content, self.began), &text)?;
                }
                _ => self.out.file(&path, Known::new(None, Content::Unknown, self.began), "")?,
            }
        }
        Ok(())
    }
}

/// A file's content; `None` where it can't be read, or has grown too long.
pub(super) fn read(seen: &Seen<'_>) -> Option<Vec<u8>> {
    let file = beneath::regular(seen.folder, seen.name).ok()??;
    let mut bytes = Vec::with_capacity(usize::try_from(seen.marks.size.min(LARGEST)).unwrap_or_default() + 1);
    file.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LARGEST).then_some(bytes)
}

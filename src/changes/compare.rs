//! The end of a run beside its start.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, readlinkat, statat};
use sha2::{Digest, Sha256};

use super::marks::{Kind, Marks, id};
use super::objects::Objects;
use super::pace::Pace;
use super::patch::{self, Side};
use super::start::read;
use super::stored::{Content, Known, Start, unescaped};
use super::walk::{Seen, Walk};
use super::{LARGEST, Looker, hex, names_secret, object_name, shown};
use crate::event::{Change, ChangeKind, Changed};
use crate::message::counted;
use crate::tools::beneath;

/// The most changes that are listed.
const MOST_CHANGES: usize = 5_000;
/// The longest patch, in bytes.
const LONGEST_PATCH: usize = 1 << 20;
/// How many files of a kind are named where something is left out.
const MOST_NAMED: usize = 5;

/// How long git may take for all its answers.
const LONGEST_ANSWERS: Duration = Duration::from_secs(8);

/// A file that may have changed: how it was, and how it is.
type Suspect = (PathBuf, Option<Known>, Option<Marks>);

/// What can be shown of a file.
enum Shown {
    /// It isn't there.
    Absent,
    Text(String),
    /// It is no text, too large, or nothing is kept of it.
    Hidden,
}

/// What is there now.
enum Now {
    Absent,
    File(Vec<u8>),
    Link(Vec<u8>),
    /// It is too large, or can't be read.
    Closed,
}

struct Comparison<'a> {
    looker: &'a Looker,
    start: Start,
    pace: &'a Pace,
    /// Whether git was looked for, and what came of it.
    objects: Option<Option<Objects>>,
    changes: Vec<Change>,
    patch: String,
    /// Files beyond the bounds of the list.
    more: usize,
    hidden: Vec<PathBuf>,
    beyond: Vec<PathBuf>,
    masked: bool,
}

/// Everything that differs.
pub(super) fn changed(looker: &Looker, mut start: Start, pace: &Pace) -> Changed {
    let mut gaps = std::mem::take(&mut start.whole.gaps);
    let mut files = std::mem::take(&mut start.files);
    let mut suspects: Vec<Suspect> = Vec::new();
    let last = start.whole.cut.as_deref().map(unescaped);
    let mut walk = Walk::later(looker, pace, &start.ignored, last.as_deref());
    let mut unnamed = 0_u64;
    walk.run(looker.workspace.folder(), &mut |seen| match files.remove(&seen.path) {
        None if names_secret(&looker.mask, &seen.path) => unnamed += 1,
        Some(known) if known.marks == Some(seen.marks) && !known.young => {}
        known => suspects.push((seen.path, known, Some(seen.marks))),
    });
    let Walk { cut, mut newly_ignored, .. } = walk;
    newly_ignored.retain(|path| !files.contains_key(path));
    // What was there and wasn't come by: it is gone, or ignored by now.
    let mut unseen: Vec<(PathBuf, Known)> = files.into_iter().collect();
    unseen.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut late = cut.is_some();
    for (path, known) in unseen {
        if pace.is_over() {
            late = true;
            break;
        }
        let stat = open(looker, &path).and_then(|(folder, name)| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        if stat.as_ref().is_some_and(|stat| looker.outputs.contains(&id(stat))) {
            continue;
        }
        let marks = stat.as_ref().and_then(Marks::of);
        if marks != known.marks || known.young {
            suspects.push((path, Some(known), marks));
        }
    }
    // The run's first part may have printed elsewhere.
    let printed: Vec<PathBuf> = start.whole.outputs.iter().map(|path| unescaped(path)).collect();
    suspects.retain(|(path, ..)| !printed.contains(path));
    suspects.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut comparison = Comparison {
        looker,
        start,
        pace,
        objects: None,
        changes: Vec::new(),
        patch: String::new(),
        more: 0,
        hidden: Vec::new(),
        beyond: Vec::new(),
        masked: false,
    };
    for (path, known, marks) in suspects {
        if pace.is_over() {
            late = true;
            break;
        }
        comparison.judge(&path, known.as_ref(), marks);
    }
    if unnamed > 0 && !gaps.iter().any(|gap| gap.contains("with a secret in the name")) {
        gaps.push(format!("{} with a secret in the name or the path can't be followed", counted(unnamed, "file")));
    }
    if late {
        gaps.push("there was no time to look at every file".to_owned());
    }
    if !newly_ignored.is_empty() {
        let named = named(&newly_ignored);
        gaps.push(format!("new files that only ignore files of the run's own leave out aren't listed ({named})"));
    }
    comparison.end(gaps)
}

/// The folder that a file lies in, opened, and its name there.
fn open<'a>(looker: &Looker, path: &'a Path) -> Option<(OwnedFd, &'a std::ffi::OsStr)> {
    let folder = beneath::folder(looker.workspace.folder(), path.parent().unwrap_or(Path::new(""))).ok()?;
    Some((folder, path.file_name()?))
}

impl Comparison<'_> {
    fn judge(&mut self, path: &Path, known: Option<&Known>, marks: Option<Marks>) {
        let before = known.and_then(|known| Some((known, known.marks?)));
        let now = self.now(path, marks);
        let change = match (before, marks) {
            (None, None) => return,
            (None, Some(_)) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some((known, then)), Some(marks)) => {
                if self.is_same(&known.content, &then, &marks, &now) {
                    if then.executable == marks.executable {
                        return;
                    }
                    // Only the mode is another; what the file holds needn't be known for that.
                    let side = |marks: &Marks| Shown::Text(String::new()).side(marks.mode());
                    return self.note(path, ChangeKind::Modified, &side(&then), &side(&marks));
                }
                ChangeKind::Modified
            }
        };
        if self.changes.len() >= MOST_CHANGES {
            self.more += 1;
            return;
        }
        let old = before.map_or(Shown::Absent, |(known, then)| self.before(known, &then));
        let new = self.after(now);
        let (then, marks) = (before.map(|(_, then)| then), marks);
        let side = |shown: Shown, marks: Option<Marks>| marks.map_or(Sided::Absent, |marks| shown.side(marks.mode()));
        self.note(path, change, &side(old, then), &side(new, marks));
    }

    fn now(&self, path: &Path, marks: Option<Marks>) -> Now {
        let Some(marks) = marks else { return Now::Absent };
        let Some((folder, name)) = open(self.looker, path) else { return Now::Closed };
        match marks.kind {
            Kind::Link => readlinkat(&folder, name, Vec::new())
                .map_or(Now::Closed, |target| Now::Link(target.as_bytes().to_vec())),
            Kind::File => {
                let seen = Seen { path: PathBuf::new(), marks, folder: folder.as_fd(), name };
                read(&seen).map_or(Now::Closed, Now::File)
            }
        }
    }

    /// Whether the content is the same, whatever its marks say.
    fn is_same(&self, content: &Content, then: &Marks, marks: &Marks, now: &Now) -> bool {
        let sha256 = self.start.whole.repository.as_ref().is_some_and(|(_, sha256)| *sha256);
        match (content, now) {
            (Content::Object(name), Now::File(bytes)) => {
                then.kind == marks.kind
                    && (hex(&object_name(bytes, sha256)) == *name
                        || (then.size == marks.size && hex(&object_name(&with_lf(bytes), sha256)) == *name))
            }
            (Content::Text { sum, .. } | Content::Sum(sum), Now::File(bytes))
            | (Content::Link(_, sum), Now::Link(bytes)) => hex(&Sha256::digest(bytes)) == *sum,
            // Of a large one only the marks are known; one that is merely young may have them still.
            (Content::Unknown | Content::Object(_), _) => then == marks,
            _ => false,
        }
    }

    fn before(&mut self, known: &Known, then: &Marks) -> Shown {
        match &known.content {
            Content::Text { masked, .. } => {
                self.masked |= masked;
                self.start.text(known).map_or(Shown::Hidden, Shown::Text)
            }
            Content::Link(target, _) => Shown::Text(target.clone()),
            Content::Object(name) if then.size <= LARGEST => {
                let Some(bytes) = self.object(name) else { return Shown::Hidden };
                let bytes = if bytes.len() as u64 == then.size { bytes } else { with_crlf(&bytes) };
                if bytes.len() as u64 == then.size { self.text(bytes) } else { Shown::Hidden }
            }
            Content::Object(_) | Content::Sum(_) | Content::Unknown => Shown::Hidden,
        }
    }

    fn after(&mut self, now: Now) -> Shown {
        match now {
            Now::Absent => Shown::Absent,
            Now::File(bytes) | Now::Link(bytes) => self.text(bytes),
            Now::Closed => Shown::Hidden,
        }
    }

    fn text(&mut self, bytes: Vec<u8>) -> Shown {
        let Some(text) = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) else {
            return Shown::Hidden;
        };
        let shown = self.looker.mask.text(&text).into_owned();
        self.masked |= shown != text;
        Shown::Text(shown)
    }

    fn object(&mut self, name: &str) -> Option<Vec<u8>> {
        let end = self.pace.end().min(Instant::now() + LONGEST_ANSWERS);
        let (folder, sha256) = self.start.whole.repository.as_ref()?;
        let git = self.looker.git.as_deref();
        let open = || Objects::open(git?, folder, *sha256, end).ok();
        self.objects.get_or_insert_with(open).as_mut()?.content(name)
    }

    fn note(&mut self, path: &Path, change: ChangeKind, old: &Sided, new: &Sided) {
        if self.changes.len() >= MOST_CHANGES {
            self.more += 1;
            return;
        }
        let known = !matches!(old, Sided::Hidden) && !matches!(new, Sided::Hidden);
        let section = known.then(|| patch::section(path, old.shown(), new.shown()));
        let lines = section.as_ref().map(|section| (section.added, section.removed));
        let name = self.looker.mask.text(&path.to_string_lossy()).into_owned();
        self.changes.push(Change {
            path: name,
            change,
            lines_added: lines.map(|(added, _)| added),
            lines_removed: lines.map(|(_, removed)| removed),
        });
        match section {
            None => self.hidden.push(path.to_owned()),
            Some(section) if self.patch.len() + section.text.len() > LONGEST_PATCH => self.beyond.push(path.to_owned()),
            Some(section) => self.patch += &section.text,
        }
    }

    fn end(self, mut gaps: Vec<String>) -> Changed {
        let total = (self.more > 0).then(|| (self.changes.len() + self.more) as u64);
        if let Some(total) = total {
            gaps.push(format!("{total} files have changed, and the first {} of them are listed", self.changes.len()));
        }
        if !self.hidden.is_empty() {
            let named = named(&self.hidden);
            gaps.push(format!("the patch is without what is no text, too large or wasn't kept ({named})"));
        }
        if !self.beyond.is_empty() {
            gaps.push(format!("the patch would be too long with the rest of it ({})", named(&self.beyond)));
        }
        if self.masked {
            gaps.push("secrets are masked in the patch, so it can't be applied as it is".to_owned());
        }
        let mask = &self.looker.mask;
        let mut patch = self.patch;
        if !self.looker.shows_content {
            patch.clear();
            gaps.push(
                "there is no patch, for it could hold a secret that had another value before the run went on"
                    .to_owned(),
            );
        }
        if !patch.is_empty() {
            gaps.iter().for_each(|gap| patch += &format!("# {gap}\n"));
        }
        let incomplete = (!gaps.is_empty()).then(|| mask.text(&gaps.join("; ")).into_owned());
        Changed { changes: self.changes, total, patch: mask.text(&patch).into_owned(), incomplete }
    }
}

/// One side of a change.
enum Sided {
    Absent,
    Hidden,
    There(&'static str, String),
}

impl Sided {
    fn shown(&self) -> Option<Side<'_>> {
        match self {
            Self::There(mode, text) => Some(Side { mode, text }),
            Self::Absent | Self::Hidden => None,
        }
    }
}

impl Shown {
    fn side(self, mode: &'static str) -> Sided {
        match self {
            Self::Absent => Sided::Absent,
            Self::Hidden => Sided::Hidden,
            Self::Text(text) => Sided::There(mode, text),
        }
    }
}

fn named(paths: &[PathBuf]) -> String {
    let named: Vec<String> = paths.iter().take(MOST_NAMED).map(|path| format!("`{}`", shown(path))).collect();
    let more = paths.len().saturating_sub(MOST_NAMED);
    named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// A content as git checks it out where line ends are CRLF.
fn with_crlf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    let mut before = 0;
    for byte in bytes {
        if *byte == b'\n' && before != b'\r' {
            out.push(b'\r');
        }
        out.push(*byte);
        before = *byte;
    }
    out
}

/// The way back.
fn with_lf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'\r' || bytes.get(at + 1) != Some(&b'\n') {
            out.push(*byte);
        }
    }
    out
}

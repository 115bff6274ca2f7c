//! Copies the workspace for a test case, with size limits and without files that don't belong in a repository.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use rustix::fs::FileType;

use crate::cases::fixture;
use crate::redaction::Redactor;
use crate::sandbox::protected_paths::canonical_as_far_as_possible;
use crate::temporary_folder::TemporaryFolder;
use crate::text::pluralize;
use crate::workspace::ignore_filter::IgnoreFilter;
use crate::workspace::open_root::OpenRoot;

/// The most files in a copy.
const MAX_FILES: usize = 2_000;
/// The largest file in a copy, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most bytes in a copy.
const MAX_BYTES: u64 = 16 << 20;
/// Why a file is skipped that a copy of fewer files can hold.
const TOO_MANY_FILES: &str = "more than 2,000 files";
const TOO_MANY_BYTES: &str = "more than 16 MiB in total";
/// The most files and folders to visit.
const MAX_VISITED: usize = 200_000;

/// Names of files with keys and passwords.
const SECRET_NAMES: [&str; 12] = [
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    "credentials",
    "credentials.toml",
    "credentials.json",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
];
const SECRET_EXTENSIONS: [&str; 7] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
const SECRET_FOLDERS: [&str; 4] = [".ssh", ".gnupg", ".aws", ".azure"];

/// A copy of a workspace, with the escaped names of fixtures.
pub(super) struct WorkspaceCopy {
    pub(super) temp_folder: TemporaryFolder,
    pub(super) workspace: PathBuf,
    /// The workspace, open: a command may change what is in it at any time.
    pub(super) root: OpenRoot,
    /// The user's own list of ignored files.
    own_ignore_file: Option<PathBuf>,
    /// Absolute paths that are ignored.
    excluded: Vec<PathBuf>,
    /// The relative paths of the copied files.
    pub(super) files: BTreeSet<PathBuf>,
    /// The relative paths of the skipped files, with the reasons.
    skipped: BTreeMap<PathBuf, &'static str>,
}

impl WorkspaceCopy {
    /// Copies the files in a folder, including hidden ones, except for ignored files and `.git`.
    pub(super) fn copy(
        workspace: &Path,
        excluded: &[PathBuf],
        own_ignore_file: Option<PathBuf>,
        redactor: &Redactor,
    ) -> io::Result<Self> {
        let mut fixture = Self {
            temp_folder: TemporaryFolder::create_in(&tempfile::env::temp_dir())?,
            workspace: workspace.to_owned(),
            root: OpenRoot::open(workspace)?,
            own_ignore_file,
            excluded: excluded.iter().map(|path| canonical_as_far_as_possible(path)).collect(),
            files: BTreeSet::new(),
            skipped: BTreeMap::new(),
        };
        let mut bytes = 0;
        for path in fixture.list_files()? {
            match fixture.copy_file(&path, &mut bytes, redactor)? {
                None => drop(fixture.files.insert(path)),
                Some(why) => drop(fixture.skipped.insert(path, why)),
            }
        }
        Ok(fixture)
    }

    /// Copies one file, or returns the reason for skipping it.
    fn copy_file(&self, path: &Path, bytes: &mut u64, redactor: &Redactor) -> io::Result<Option<&'static str>> {
        let Some(escaped) = fixture::escape_path(path) else { return Ok(Some("invalid file name")) };
        let target = self.temp_folder.path().join(escaped);
        let stat = match self.root.stat(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some("deleted in the meantime")),
            stat => stat?,
        };
        let (kind, length) = (FileType::from_raw_mode(stat.st_mode), u64::try_from(stat.st_size).unwrap_or(u64::MAX));
        let why = match () {
            () if is_secret_file(path) => "may contain secrets",
            () if !matches!(kind, FileType::RegularFile | FileType::Symlink) => "not a regular file",
            () if length > MAX_FILE_BYTES => "larger than 1 MiB",
            () if self.files.len() >= MAX_FILES => TOO_MANY_FILES,
            () if *bytes + length > MAX_BYTES => TOO_MANY_BYTES,
            () => "",
        };
        if !why.is_empty() {
            return Ok(Some(why));
        }
        fs::create_dir_all(target.parent().unwrap_or(self.temp_folder.path()))?;
        if kind == FileType::Symlink {
            let to = self.root.read_link(path)?;
            if to.is_absolute() {
                return Ok(Some("symbolic link to an absolute path"));
            }
            std::os::unix::fs::symlink(to, target)?;
            return Ok(None);
        }
        let content = self.root.read(path, MAX_FILE_BYTES)?;
        let text = String::from_utf8_lossy(&content);
        if redactor.redact(&text) != text {
            return Ok(Some("contains a secret of this run"));
        }
        *bytes += content.len() as u64;
        fs::write(&target, &content)?;
        #[allow(clippy::useless_conversion, reason = "the type differs between systems")]
        let mode = u32::from(stat.st_mode) & 0o777;
        fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
        Ok(None)
    }

    /// The path that a path leads to, if it is or is behind a link of the workspace, and that link. A run that only calls tools
    /// for files makes and changes no links.
    pub(super) fn follow_link(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let mut parts = path.components();
        let mut link = PathBuf::new();
        while let Some(part) = parts.next() {
            link.push(part);
            let Ok(target) = self.root.read_link(&link) else { continue };
            let mut followed = link.parent()?.to_owned();
            for part in target.components().chain(parts) {
                match part {
                    Component::ParentDir => drop(followed.pop().then_some(())?),
                    Component::CurDir => {}
                    part => followed.push(part),
                }
            }
            return Some((followed, link));
        }
        None
    }

    /// Copies the files that a case needs and only the limits for all files kept out. They are unchanged since the run began.
    pub(super) fn copy_needed(&mut self, is_needed: impl Fn(&Path) -> bool, redactor: &Redactor) -> io::Result<()> {
        let (needed, others): (BTreeSet<PathBuf>, _) =
            std::mem::take(&mut self.files).into_iter().partition(|path| is_needed(path));
        let size = |path: &PathBuf| {
            Some(fs::symlink_metadata(self.temp_folder.path().join(fixture::escape_path(path)?)).ok()?.len())
        };
        let mut bytes = needed.iter().filter_map(size).sum();
        self.files = needed;
        let is_late = |why: &str| [TOO_MANY_FILES, TOO_MANY_BYTES].contains(&why);
        let late = self.skipped.iter().filter(|(path, why)| is_late(why) && is_needed(path));
        let late: Vec<PathBuf> = late.map(|(path, _)| path.clone()).collect();
        for path in late {
            match self.copy_file(&path, &mut bytes, redactor)? {
                None => {
                    self.skipped.remove(&path);
                    self.files.insert(path);
                }
                Some(why) => drop(self.skipped.insert(path, why)),
            }
        }
        self.files.extend::<BTreeSet<PathBuf>>(others);
        Ok(())
    }

    /// Notes which of these paths are files that aren't in the copy for another reason than the limits.
    pub(super) fn note_ignored<'a>(&mut self, paths: impl Iterator<Item = &'a PathBuf>) {
        let is_file = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        for path in paths.filter(|path| !self.files.contains(*path)) {
            if self.root.stat(path).is_ok_and(is_file) {
                let why = "git ignores it, or it belongs to a run or a case";
                self.skipped.entry(path.clone()).or_insert(why);
            }
        }
    }

    /// The current files of the workspace: relative paths, sorted.
    fn list_files(&self) -> io::Result<Vec<PathBuf>> {
        let excluded = self.excluded.clone();
        let filter = IgnoreFilter::of_git(&self.workspace, self.own_ignore_file.as_deref());
        let walk = filter
            .walk()
            .hidden(false)
            .filter_entry(move |entry| {
                let is_excluded = entry.file_name() == ".git" || excluded.iter().any(|path| path == entry.path());
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                entry.depth() == 0 || !(is_excluded || filter.is_ignored(entry.path(), is_folder))
            })
            .build();
        let mut files = Vec::new();
        for (seen, entry) in walk.enumerate() {
            if seen >= MAX_VISITED {
                return Err(io::Error::other(format!("more than {MAX_VISITED} files and folders")));
            }
            let Ok(entry) = entry else { continue };
            if entry.depth() > 0 && !entry.file_type().is_some_and(|kind| kind.is_dir()) {
                files.extend(entry.path().strip_prefix(&self.workspace).map(Path::to_owned));
            }
        }
        files.sort();
        Ok(files)
    }

    /// The files that have changed since the copy, except for skipped ones.
    pub(super) fn changed_files(&self) -> io::Result<Vec<PathBuf>> {
        let current: BTreeSet<PathBuf> =
            self.list_files()?.into_iter().filter(|path| !self.skipped.contains_key(path)).collect();
        let is_changed = |path: &&PathBuf| {
            let copied = fixture::escape_path(path).map(|escaped| self.temp_folder.path().join(escaped));
            let same = |copy: &Path| match (fs::read_link(copy), self.root.read_link(path)) {
                (Ok(one), Ok(other)) => one == other,
                (Err(_), Err(_)) => {
                    matches!((fs::read(copy), self.root.read(path, MAX_FILE_BYTES)), (Ok(one), Ok(other)) if one == other)
                }
                _ => false,
            };
            !copied.is_some_and(|copied| same(&copied))
        };
        let deleted = self.files.iter().filter(|path| self.root.stat(path).is_err());
        let mut changed: Vec<PathBuf> = current.iter().filter(is_changed).chain(deleted).cloned().collect();
        changed.sort();
        changed.dedup();
        changed.retain(|path| !is_secret_file(path));
        Ok(changed)
    }

    /// Removes the files that a case doesn't need from a copy of this copy, and folders that are empty then.
    pub(super) fn remove_others(&self, copy: &Path, is_needed: impl Fn(&Path) -> bool) -> io::Result<()> {
        for path in self.files.iter().filter(|path| !is_needed(path)) {
            let Some(escaped) = fixture::escape_path(path) else { continue };
            let file = copy.join(escaped);
            fs::remove_file(&file)?;
            let folders = file.ancestors().skip(1).take_while(|folder| *folder != copy);
            // A folder that isn't empty stays.
            { folders }.find(|folder| fs::remove_dir(folder).is_err());
        }
        Ok(())
    }

    /// A short summary of the copy, of which a case may need only some files.
    pub(super) fn summary(&self, is_needed: impl Fn(&Path) -> bool) -> String {
        let (all, needed) = (self.files.len(), self.files.iter().filter(|path| is_needed(path)).count());
        let files = pluralize(needed as u64, "file");
        match needed {
            0 => "an empty workspace".to_owned(),
            _ if needed < all => format!("{files} in its workspace, which are all that the run used"),
            _ => format!("{files} in its workspace"),
        }
    }

    /// The skipped files among those that are needed: one line per reason, with a few names.
    pub(super) fn skipped_summary(&self, is_needed: impl Fn(&Path) -> bool) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (path, why) in self.skipped.iter().filter(|(path, _)| is_needed(path)) {
            by_reason.entry(why).or_default().push(path.display().to_string());
        }
        let line = |(why, paths): (&str, Vec<String>)| {
            let named = paths.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            let more = match paths.len().saturating_sub(3) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("skipped {named}{more}: {why}")
        };
        by_reason.into_iter().map(line).collect()
    }
}

fn is_secret_file(path: &Path) -> bool {
    let lower = |part: &std::ffi::OsStr| part.to_string_lossy().to_ascii_lowercase();
    let name = path.file_name().map(lower).unwrap_or_default();
    let is_env = name == ".env"
        || (name.starts_with(".env.") && ![".env.example", ".env.sample", ".env.template"].contains(&name.as_str()));
    is_env
        || SECRET_NAMES.contains(&name.as_str())
        || SECRET_EXTENSIONS.iter().any(|ending| name.ends_with(ending))
        || path.iter().any(|part| SECRET_FOLDERS.contains(&lower(part).as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suitable_files_are_copied_and_the_rest_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = [
            ("src/a.txt", "a"),
            (".gitignore", "/target\n"),
            ("target/x", "x"),
            (".env", "A=b"),
            (".env.example", "A="),
            ("keys/server.KEY", "k"),
            ("runs/1/x", "x"),
            (".git/config", ""),
            ("own-list", "own-list\nleft-out\n"),
            ("src/left-out", "l"),
            ("told.txt", "it is hunter2-hunter2"),
            ("dot-gitx", ""),
        ];
        for (name, text) in files {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("long"), vec![b'x'; (MAX_FILE_BYTES + 1) as usize]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("away")).unwrap();
        std::os::unix::fs::symlink("src", at("near")).unwrap();
        let redactor = Redactor::new(&[("T".into(), "hunter2-hunter2".into())]).0;
        let fixture = WorkspaceCopy::copy(folder.path(), &[at("runs")], Some(at("own-list")), &redactor).unwrap();
        let copied: Vec<String> = fixture.files.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(copied, [".env.example", ".gitignore", "near", "src/a.txt"]);
        assert!(fixture.temp_folder.path().join("dot-gitignore").exists());
        let skipped = fixture.skipped_summary(|_| true).join("\n");
        for name in [".env", "keys/server.KEY", "told.txt", "dot-gitx", "long", "away"] {
            assert!(skipped.contains(name), "{name}: {skipped}");
        }
        assert_eq!(fixture.changed_files().unwrap(), Vec::<PathBuf>::new());
        fs::write(at("src/a.txt"), "b").unwrap();
        fs::write(at("new"), "n").unwrap();
        fs::write(at(".env"), "A=c").unwrap();
        fs::write(at("target/y"), "y").unwrap();
        fs::remove_file(at("near")).unwrap();
        assert_eq!(fixture.changed_files().unwrap(), ["near", "new", "src/a.txt"].map(PathBuf::from));
    }
}

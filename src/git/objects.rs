//! Object names, and contents from the object store.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::process::GitProcess;
use super::program::GitProgram;
use crate::text::bounded::read_up_to;
use crate::text::hex;

/// How much of a list of references is read, in bytes.
const MAX_REFERENCE_BYTES: u64 = 1 << 20;

/// The name that git gives to a file's content.
pub(crate) fn object_id(content: &[u8], sha256: bool) -> Vec<u8> {
    typed_object_id("blob", content, sha256)
}

fn typed_object_id(kind: &str, content: &[u8], sha256: bool) -> Vec<u8> {
    fn hash<D: Digest>(kind: &str, content: &[u8]) -> Vec<u8> {
        let mut digest = D::new();
        digest.update(format!("{kind} {}\0", content.len()));
        digest.update(content);
        digest.finalize().to_vec()
    }
    if sha256 { hash::<Sha256>(kind, content) } else { hash::<Sha1>(kind, content) }
}

/// Adds a pack to a git folder that is open. Git computes its index from its content.
pub(crate) fn index_pack(git: &Path, git_dir: &OwnedFd, pack: File, deadline: Instant) -> io::Result<()> {
    let mut command = GitProgram::on_open_folder(git, git_dir);
    command.args(["index-pack", "--stdin"]).stdin(pack).stdout(Stdio::null());
    match GitProcess::start(command, deadline)?.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("git failed")),
    }
}

/// Whether a git folder has these objects with all that they refer to. What the `known` ones refer to isn't looked at.
pub(crate) fn has_all_objects(
    git: &Path,
    git_dir: &OwnedFd,
    names: &[String],
    known: &[String],
    deadline: Instant,
) -> io::Result<bool> {
    let mut command = GitProgram::on_open_folder(git, git_dir);
    command.args(["rev-list", "--objects", "--quiet", "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = GitProcess::start(command, deadline)?;
    if let (Some(mut stdin), _) = process.take_pipes() {
        let known = known.iter().map(|name| format!("^{name}\n"));
        let all: String = names.iter().map(|name| format!("{name}\n")).chain(known).collect();
        // It ends early if one is missing.
        let _ = stdin.write_all(all.as_bytes());
    }
    Ok(process.wait()?.success())
}

/// The objects that the references with exactly these full names point to, by name. Missing ones are left out.
pub(super) fn read_references(
    git: &GitProgram,
    git_dir: &Path,
    names: &[String],
    deadline: Instant,
) -> io::Result<Vec<(String, String)>> {
    let mut command = git.on_objects(git_dir);
    command.args(["for-each-ref", "--format=%(objectname) %(refname)", "--"]).args(names).stderr(Stdio::null());
    let mut process = GitProcess::start(command, deadline)?;
    let output = match process.take_pipes() {
        // A name is also a pattern for everything below it, which doesn't count.
        (_, Some(stdout)) => read_up_to(stdout, MAX_REFERENCE_BYTES)?,
        _ => Vec::new(),
    };
    let text = String::from_utf8_lossy(&output);
    let found = text.lines().filter_map(|line| line.split_once(' '));
    let exact = found.filter(|(_, name)| names.iter().any(|wanted| wanted == name));
    Ok(exact.map(|(id, name)| (name.to_owned(), id.to_owned())).collect())
}

/// A `git cat-file --batch` process that reads the contents of objects. It applies no filters. Contents are hashed again,
/// because a command can write into the object store.
pub(crate) struct GitObjects {
    /// Ends with this.
    _process: GitProcess,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sha256: bool,
    /// The largest content that is returned, in bytes.
    max_bytes: u64,
}

impl GitObjects {
    /// Starts git for a git folder.
    pub(crate) fn open(
        git: &GitProgram,
        git_dir: &Path,
        sha256: bool,
        max_bytes: u64,
        deadline: Instant,
    ) -> io::Result<Self> {
        Self::start(git.on_objects(git_dir), sha256, max_bytes, deadline)
    }

    /// The same for a git folder that is open. `git` is an absolute path.
    pub(crate) fn open_folder(
        git: &Path,
        git_dir: &OwnedFd,
        sha256: bool,
        max_bytes: u64,
        deadline: Instant,
    ) -> io::Result<Self> {
        Self::start(GitProgram::on_open_folder(git, git_dir), sha256, max_bytes, deadline)
    }

    fn start(mut command: Command, sha256: bool, max_bytes: u64, deadline: Instant) -> io::Result<Self> {
        command.args(["cat-file", "--batch"]).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut process = GitProcess::start(command, deadline)?;
        let (input, output) = process.take_pipes();
        let (input, output) = input.zip(output).ok_or_else(|| io::Error::other("git has no pipes"))?;
        Ok(Self { _process: process, input, output: BufReader::new(output), sha256, max_bytes })
    }

    /// The content of a file; `None` if it is missing, too large or doesn't match its name.
    pub(crate) fn content(&mut self, name: &str) -> Option<Vec<u8>> {
        self.object(name).filter(|(kind, _)| kind == "blob").map(|(_, content)| content)
    }

    /// Whether an object is there, isn't too large, and matches its full name.
    pub(crate) fn is_intact(&mut self, name: &str) -> bool {
        self.object(name).is_some()
    }

    /// The kind and the content of an object, by its full name; `None` if it is missing, too large or doesn't match its name.
    pub(super) fn object(&mut self, name: &str) -> Option<(String, Vec<u8>)> {
        writeln!(self.input, "{name}").ok()?;
        let mut header = String::new();
        (&mut self.output).take(1024).read_line(&mut header).ok()?;
        let (kind, length) = header.trim_end().strip_prefix(name)?.strip_prefix(' ')?.split_once(' ')?;
        let length: u64 = length.parse().ok()?;
        if length > self.max_bytes {
            io::copy(&mut (&mut self.output).take(length.checked_add(1)?), &mut io::sink()).ok()?;
            return None;
        }
        let mut content = vec![0; usize::try_from(length).ok()? + 1];
        self.output.read_exact(&mut content).ok()?;
        content.pop();
        (hex(&typed_object_id(kind, &content, self.sha256)) == name).then(|| (kind.to_owned(), content))
    }
}

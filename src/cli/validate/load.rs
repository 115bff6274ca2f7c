//! A file as it is checked: a job with its folder, or a script with its job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::File;
use super::{Checked, input};
use crate::diagnostic::{Diagnostic, Source};
use crate::job::Job;
use crate::lints::{self, Origin, Own};
use crate::template::Folder;
use crate::yaml;

/// A file that could be read.
pub(super) struct Loaded {
    pub(super) source: Arc<Source>,
    /// Where it can be written; standard input can't.
    pub(super) path: Option<PathBuf>,
    /// Where its prompts are looked up.
    pub(super) folder: PathBuf,
    pub(super) kind: Kind,
    pub(super) origin: Origin,
    pub(super) own: Own,
}

/// What it is.
pub(super) enum Kind {
    /// A job, with its folder where that could be opened.
    Job(Option<Folder>),
    /// A script, with the job that it belongs to where that can be read.
    Script(Option<Box<Job>>),
}

/// Reads a file. Standard input is read as the file `stdin`, which need not be there.
///
/// # Errors
/// Where it can't be read: a finding that says why.
pub(super) fn load(file: &File, stdin: &Path, origin: Origin, own: &Own) -> Result<Loaded, Diagnostic> {
    let (name, source, path) = match file {
        File::Path(path) => {
            input::refuse_links(path, origin)?;
            (path.as_path(), input::read_job_source(path)?, Some(path.clone()))
        }
        File::Stdin => (stdin, input::read_stdin(stdin)?, None),
    };
    let folder = match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let kind = if input::is_script(name) {
        Kind::Script(job_of(name).map(Box::new))
    } else {
        match (Folder::open(&folder), file) {
            (Ok(folder), _) => Kind::Job(Some(folder)),
            // An editor's buffer may be saved to a folder that is yet to come.
            (Err(_), File::Stdin) => Kind::Job(None),
            (Err(error), File::Path(_)) => return Err(input::unreadable(&folder, &error.to_string())),
        }
    };
    Ok(Loaded { source, path, folder, kind, origin, own: own.clone() })
}

/// Everything that is wrong with a file.
pub(super) fn check(loaded: &Loaded) -> Checked {
    match &loaded.kind {
        Kind::Job(folder) => {
            let lints::Checked { findings, prompts, .. } =
                lints::check_from(&loaded.source, folder.as_ref(), loaded.origin, &loaded.own);
            Checked { findings, prompts }
        }
        Kind::Script(job) => {
            Checked { findings: lints::check_script(&loaded.source, job.as_deref()), prompts: Vec::new() }
        }
    }
}

/// The job that a script lies beside, by its name, where its form has no mistake.
fn job_of(script: &Path) -> Option<Job> {
    let stem = Path::new(script.file_stem()?).file_stem()?.to_owned();
    let beside = ["yaml", "yml"].map(|ending| {
        let mut name = stem.clone();
        name.push(".");
        name.push(ending);
        script.with_file_name(name)
    });
    let source = beside.iter().find_map(|path| input::read_source(path).ok())?;
    let decoded = yaml::read::<Job>(&source);
    decoded.value.filter(|_| decoded.holes.is_empty())
}

//! `legwork validate`: all findings of all files.

mod atomic_replace;
mod diff;
mod fix;
mod input_files;
mod load;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use self::fix::{FixMode, Fixer};
use self::input_files::InputFile;
use self::load::{LoadedFile, check, load};
use super::output::printable;
use super::{CliEnv, format_parser, read_files};
use crate::diagnostic::{Diagnostic, Severity};
use crate::error::Error;
use crate::event::{EXIT_ENVIRONMENT, EXIT_INVALID};
use crate::formats::{self, Subject};
use crate::lints::{JobTrust, UserConfig};
use crate::template::FileId;

/// Options of `legwork validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 where no finding is an error, 3 where one is, 2 for a wrong command line, 5 where --fix couldn't write a \
file. With --diff the files stay as they are, and so does the exit code.")]
pub(super) struct ValidateArgs {
    /// Job files, folders, or - for standard input
    ///
    /// In a folder every *.yaml and *.yml is a job, but *.script.yaml and *.script.yml are scripts. Hidden and ignored
    /// files and folders named tests are left out, and symbolic links to folders aren't followed.
    #[arg(default_value = "jobs")]
    paths: Vec<PathBuf>,
    /// How to print the findings
    #[arg(long, default_value = "text", value_parser = format_parser(Subject::Diagnostics))]
    format: String,
    /// Mend what can be mended for certain, prompt files included
    ///
    /// Nothing else in a file changes. A fix that would bring other errors is left out. stderr tells what was mended;
    /// what remains is printed as ever.
    #[arg(long, conflicts_with = "diff")]
    fix: bool,
    /// Show what --fix would change, and change nothing
    ///
    /// stdout gets the changes alone, as a diff that `git apply` takes; the findings go to stderr. The exit code is that
    /// of the files as they are: 3 where there are errors, mended by the diff or not.
    #[arg(long)]
    diff: bool,
    /// Take warnings for errors
    #[arg(long, value_name = "WHAT")]
    deny: Option<Deny>,
    /// Take the jobs for a stranger's: refuse what only trusted ones get
    ///
    /// That is `env`, secret inputs, `network: open`, a model that answers from a file, and jobs behind symbolic links.
    #[arg(long)]
    untrusted: bool,
    /// The name of what comes from standard input
    ///
    /// Findings name it, prompts are looked up in its folder, and a name that ends in .script.yaml is a script's. The
    /// file need not be there. Without it, the name is <stdin> and the folder is the current one.
    #[arg(long, value_name = "PATH")]
    stdin_name: Option<PathBuf>,
}

/// What `--deny` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Deny {
    /// Findings that are no errors
    Warnings,
}

/// What is wrong with a file.
#[derive(Debug, Default)]
struct CheckedFile {
    findings: Vec<Diagnostic>,
    /// The names of the prompt files that were read.
    prompts: Vec<String>,
}

pub(super) fn validate(options: &ValidateArgs, around: &CliEnv) -> Result<u8, Error> {
    let out = around.console;
    check_options(options, around)?;
    let stdin = options.stdin_name.as_deref().unwrap_or(Path::new("<stdin>"));
    let files = input_files::expand_paths(&options.paths);
    let origin = JobTrust::from_untrusted_flag(options.untrusted);
    // The jobs are looked at all the same: one sees all that is wrong at once.
    let (own, of_own) = around.user_config_with_findings();
    let way = if options.fix { Some(FixMode::Write) } else { options.diff.then_some(FixMode::Diff) };
    let mut mending = way.map(|way| Fixer::new(around, way));
    let mut all = Vec::with_capacity(files.len());
    for (number, file) in files.iter().enumerate() {
        let loaded = file.as_ref().map_err(Clone::clone).and_then(|file| load(file, stdin, origin, &own));
        all.push(match loaded {
            Ok(loaded) => {
                let mut checked = check(&loaded);
                if let Some(mending) = &mut mending {
                    mending.fix_file(number, loaded, &mut checked);
                }
                checked
            }
            Err(finding) => CheckedFile { findings: vec![finding], prompts: Vec::new() },
        });
    }
    if let Some(mending) = &mut mending {
        mending.fix_prompts(&mut all, &|number| recheck(files.get(number)?, stdin, origin, &own));
    }
    let of_files = all.into_iter().flat_map(|checked| checked.findings);
    let findings = deduplicate(of_own.into_iter().chain(of_files));
    let findings: Vec<Diagnostic> = findings.iter().map(Diagnostic::without_unquotable).collect();
    let format = formats::find(&options.format);
    let shown = |look| format.and_then(|format| format.diagnostics(&findings, look)).unwrap_or_default();
    match &mending {
        Some(mending) if options.diff => {
            if out.print_untrusted(&mending.diff) {
                out.warning("the diff is not for `git apply`: it holds what would steer a terminal or a CI system");
            }
            out.eprint_formatted(&options.format, &shown(out.stderr_display()));
        }
        _ => out.print_formatted(&options.format, &shown(out.stdout_display())),
    }
    if findings.is_empty() && options.format == "text" {
        let files = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
        out.eprint(&format!("{files} checked, no findings"));
    }
    let has_errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    let is_denied = options.deny == Some(Deny::Warnings) && !has_errors && !findings.is_empty();
    if is_denied {
        out.eprint("warnings are denied");
    }
    Ok(match () {
        () if mending.is_some_and(|mending| mending.has_failed) => EXIT_ENVIRONMENT,
        () if has_errors || is_denied => EXIT_INVALID,
        () => 0,
    })
}

/// Refuses what can't be, and says what would look like a halt.
fn check_options(options: &ValidateArgs, around: &CliEnv) -> Result<(), Error> {
    let usage = |message: &str, hint: &str| Error::Usage { message: message.into(), hint: Some(hint.into()) };
    let has_stdin = options.paths.iter().any(|path| path == Path::new("-"));
    if has_stdin && options.fix {
        return Err(usage("standard input can't be mended in its place", "`--diff` shows what would change."));
    }
    if options.stdin_name.is_some() && !has_stdin {
        return Err(usage("--stdin-name names standard input, which isn't read", "Add `-` to the paths."));
    }
    if has_stdin && read_files::stdin_is_terminal() {
        around.console.eprint("reading a job from standard input");
    }
    Ok(())
}

/// A file once more, after something else was mended. Standard input can't be read again.
fn recheck(
    file: &Result<InputFile, Diagnostic>,
    stdin: &Path,
    origin: JobTrust,
    own: &UserConfig,
) -> Option<(LoadedFile, CheckedFile)> {
    let file = file.as_ref().ok().filter(|file| **file != InputFile::Stdin)?;
    let loaded = load(file, stdin, origin, own).ok()?;
    let checked = check(&loaded);
    Some((loaded, checked))
}

/// Leaves out what was found before: jobs share prompt files, by various names.
fn deduplicate(findings: impl Iterator<Item = Diagnostic>) -> Vec<Diagnostic> {
    let mut ids: HashMap<String, Option<FileId>> = HashMap::new();
    let mut seen = HashSet::new();
    let is_new = |finding: &Diagnostic| {
        let name = &finding.span.source.name;
        let id = *ids.entry(name.clone()).or_insert_with(|| fs::metadata(name).ok().map(|data| FileId::of(&data)));
        let name = if id.is_none() { name.clone() } else { String::new() };
        let span = &finding.span.range;
        seen.insert((name, id, finding.code, span.start, span.end, finding.message.clone()))
    };
    let mut is_new = is_new;
    findings.filter(|finding| is_new(finding)).collect()
}

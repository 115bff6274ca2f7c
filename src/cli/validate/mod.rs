//! `legwork validate`: checks job files and reports all findings.

mod atomic_replace;
mod fix;
mod input_files;
mod load;

use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use self::fix::{FixMode, Fixer, file_id};
use self::load::{CheckedFile, Checker, STDIN};
use super::arguments::{format_parser, resolve_workspace};
use super::env::CliEnv;
use super::output::printable;
use super::read_files;
use crate::diagnostic::{Diagnostic, Severity};
use crate::error::Error;
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_INVALID};
use crate::lints::JobTrust;
use crate::reports;
use crate::template::FileId;
use crate::text::pluralize;

/// Fewer files than this aren't worth another thread.
const FILES_PER_THREAD: usize = 16;
/// As much as the main thread has: a check may nest as deeply there.
const STACK_BYTES: usize = 8 << 20;

/// Options of `legwork validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if no finding is an error, 3 if one is, 2 for a usage error, 5 if --fix can't write a file.")]
pub(super) struct ValidateArgs {
    /// Job files, folders, or - for standard input
    ///
    /// In a folder, *.script.yaml and *.script.yml are scripts, and all other *.yaml and *.yml files are jobs. Hidden and
    /// ignored files and folders named tests are skipped, and symbolic links to folders aren't followed.
    #[arg(default_value = input_files::DEFAULT_FOLDER)]
    paths: Vec<PathBuf>,
    /// The output format
    #[arg(long, default_value = "text", value_parser = format_parser(reports::FINDINGS))]
    format: String,
    /// Apply all safe fixes to the files, including prompt files
    ///
    /// Nothing else in the files changes. Fixes that would cause other errors are skipped. stderr says what was fixed, and
    /// the remaining findings are printed as usual.
    #[arg(long, conflicts_with = "diff")]
    fix: bool,
    /// Print the changes that --fix would make, without making them
    ///
    /// stdout gets the changes as a diff for `git apply`, and stderr the findings. The exit code is that of the unchanged
    /// files: 3 if they have errors, even if the diff fixes them.
    #[arg(long)]
    diff: bool,
    /// Treat warnings as errors
    #[arg(long, value_name = "WHAT", value_parser = ["warnings"])]
    deny: Option<String>,
    /// Treat the jobs as untrusted: refuse `env`, a `network` and other privileges
    ///
    /// Also refuses secret inputs, `git: commit`, `allow_changes`, `checks`, tool servers, files of commits (`ref`), models that reply from a file, and jobs behind
    /// symbolic links.
    #[arg(long)]
    untrusted: bool,
    /// The file name to use for standard input
    ///
    /// Findings use this name, prompt files are looked up in its folder, and a name that ends in .script.yaml means a
    /// script. The file needn't exist. Default: <stdin>, in the current folder.
    #[arg(long, value_name = "PATH")]
    stdin_name: Option<PathBuf>,
    /// The folder in which context files and skills are looked up
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
}

pub(super) fn validate(options: &ValidateArgs, env: &CliEnv) -> Result<u8, Error> {
    let out = &env.console;
    check_options(options, env)?;
    let stdin = options.stdin_name.as_deref().unwrap_or(Path::new("<stdin>"));
    let files = input_files::expand_paths(&options.paths);
    // Mistakes in the configuration don't prevent checking the jobs: report everything at once.
    let (user_config, config_findings) = env.user_config_with_findings();
    let workspace = env.workspace_files(&resolve_workspace(&options.workspace)?);
    let mode = if options.fix { Some(FixMode::Write) } else { options.diff.then_some(FixMode::Diff) };
    let checker = Checker { stdin, origin: JobTrust::from_untrusted_flag(options.untrusted), user_config, workspace };
    let count = files.len();
    let mut fixer = mode.map(|mode| Fixer::new(env, &checker, mode));
    let all = match &mut fixer {
        Some(fixer) => check_and_fix(&checker, fixer, files),
        None => check_in_parallel(&checker, &files),
    };
    let file_findings = all.into_iter().flat_map(|checked| checked.findings);
    let findings = deduplicate(config_findings.into_iter().chain(file_findings));
    let findings: Vec<Diagnostic> = findings.iter().map(Diagnostic::without_unquotable).collect();
    let text = |display| reports::find(reports::FINDINGS, &options.format)(&findings, display);
    match &fixer {
        Some(fixer) if options.diff => {
            if out.print_untrusted(&fixer.diff) {
                out.warning("`git apply` can't use this diff: control characters and CI commands in it were replaced");
            }
            out.eprint_formatted(&options.format, &text(out.stderr_display()));
        }
        _ => out.print_formatted(&options.format, &text(out.stdout_display())),
    }
    if findings.is_empty() && options.format == "text" {
        out.eprint(&format!("{} checked, no findings", pluralize(count as u64, "file")));
    }
    let has_errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    let is_denied = options.deny.is_some() && !has_errors && !findings.is_empty();
    if is_denied {
        out.eprint("warnings are denied");
    }
    Ok(match () {
        () if fixer.is_some_and(|fixer| fixer.has_failed) => EXIT_ENVIRONMENT,
        () if has_errors || is_denied => EXIT_INVALID,
        () => 0,
    })
}

/// Checks files on all cores. The results are in the order of the files.
fn check_in_parallel(checker: &Checker<'_>, files: &[Result<PathBuf, Diagnostic>]) -> Vec<CheckedFile> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut checked = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(number) else { return checked };
            let loaded = file.clone().and_then(|file| checker.load(&file));
            checked.push((number, loaded.map_or_else(CheckedFile::unreadable, |loaded| checker.check(&loaded))));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let helpers = cores.min(files.len() / FILES_PER_THREAD).saturating_sub(1);
    let mut checked = thread::scope(|scope| {
        // Without a thread, the other ones do its work.
        let spawn = |_| thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).ok();
        let threads: Vec<_> = (0..helpers).filter_map(spawn).collect();
        let mut checked = work();
        for thread in threads {
            checked.extend(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        checked
    });
    checked.sort_by_key(|(number, _)| *number);
    checked.into_iter().map(|(_, checked)| checked).collect()
}

/// Checks files and fixes each before the next one: jobs can share prompt files.
fn check_and_fix(
    checker: &Checker<'_>,
    fixer: &mut Fixer<'_>,
    files: Vec<Result<PathBuf, Diagnostic>>,
) -> Vec<CheckedFile> {
    let mut all = Vec::new();
    for (number, file) in files.into_iter().enumerate() {
        all.push(match file.and_then(|file| checker.load(&file)) {
            Ok(loaded) => {
                let mut checked = checker.check(&loaded);
                fixer.fix_file(number, loaded, &mut checked);
                checked
            }
            Err(finding) => CheckedFile::unreadable(finding),
        });
    }
    fixer.fix_prompts(&mut all);
    all
}

/// Checks the combination of options. Says that it waits if standard input is a terminal.
fn check_options(options: &ValidateArgs, env: &CliEnv) -> Result<(), Error> {
    let has_stdin = options.paths.iter().any(|path| path == Path::new(STDIN));
    if has_stdin && options.fix {
        return Err(Error::usage("--fix can't change standard input", "Use --diff to print the changes."));
    }
    if options.stdin_name.is_some() && !has_stdin {
        return Err(Error::usage("--stdin-name needs `-` as a path", "Add `-` to the paths."));
    }
    if has_stdin && io::stdin().is_terminal() {
        env.console.eprint("reading a job from standard input");
    }
    Ok(())
}

/// Removes duplicate findings, since jobs can share prompt files, under different names.
fn deduplicate(findings: impl Iterator<Item = Diagnostic>) -> Vec<Diagnostic> {
    let mut ids: HashMap<String, Option<FileId>> = HashMap::new();
    let mut seen = HashSet::new();
    let mut is_new = |finding: &Diagnostic| {
        let name = &finding.span.source.name;
        let id = *ids.entry(name.clone()).or_insert_with(|| file_id(Path::new(name)));
        let name = if id.is_none() { name.clone() } else { String::new() };
        let span = &finding.span.range;
        seen.insert((name, id, finding.code, span.start, span.end, finding.message.clone()))
    };
    findings.filter(|finding| is_new(finding)).collect()
}

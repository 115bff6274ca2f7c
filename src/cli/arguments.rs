//! Arguments that several commands share.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use clap::builder::PossibleValuesParser;

use super::env::CliEnv;
use super::read_files;
use crate::error::Error;
use crate::map::rows::ColumnOptions;
use crate::plan::{InputValues, MAX_VALUE_BYTES, SecretInputs, ValueSource};
use crate::reports::Formats;
use crate::text::bounded::read_up_to;

/// The help about the argument RUN.
pub(super) const RUN_HELP: &str = "\
RUN is a folder, a run id or its first characters, a key, the id of a row, JOB/KEY, MAP/ROW, JOB/MAP/ROW, JOB/latest, or latest.";

/// The help about the exit codes of a run.
pub(super) const RUN_EXIT_CODES: &str = "\
Exit codes: 0 if the run completed and all checks passed; 1 if a check failed, the result is invalid or the model refused; 2 for \
a usage error; 3 if the job or its inputs are invalid; 4 at a limit; 5 if the environment or the provider doesn't allow the \
run; 75 if the provider failed and a later attempt may succeed; 128 plus the signal number after a signal.";

/// A parser of `--format` that accepts the formats of a table.
pub(super) fn format_parser<F>(formats: Formats<F>) -> PossibleValuesParser {
    PossibleValuesParser::new(formats.iter().map(|(name, _)| *name))
}

/// The values of `--limit`, by name. If a limit is repeated, the last value counts.
pub(super) fn parse_limits(arguments: &[String]) -> BTreeMap<String, String> {
    let pairs = arguments.iter().filter_map(|argument| argument.split_once('='));
    // The journal and messages use these prefixes, so accept them.
    let name = |name: &str| name.strip_prefix("limits.").or(name.strip_prefix("parent.")).unwrap_or(name).to_owned();
    pairs.map(|(key, value)| (name(key), value.to_owned())).collect()
}

/// Checks that an argument has the form `NAME=...`.
pub(super) fn parse_assignment(argument: &str) -> Result<String, &'static str> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(argument.to_owned()),
        _ => Err("expected NAME=..."),
    }
}

/// The secret inputs of a resumed or replayed run, which are not in the record.
pub(super) fn read_secret_inputs(
    set: &[String],
    set_env: &[String],
    env: &CliEnv,
    names: &[String],
) -> Result<SecretInputs, Error> {
    let mut inputs = InputValues::default();
    add_input_arguments(&mut inputs, set, set_env, env, &|_| false);
    inputs.secret_inputs(names).map_err(Error::Invalid)
}

pub(super) fn add_input_arguments(
    inputs: &mut InputValues,
    set: &[String],
    set_env: &[String],
    env: &CliEnv,
    is_image: &dyn Fn(&str) -> bool,
) {
    for argument in set {
        if argument.split_once('=').is_some_and(|(name, _)| is_image(name)) {
            inputs.set_image(argument);
            continue;
        }
        inputs.set(argument, |contents| match contents {
            ValueSource::Stdin => read_up_to(io::stdin(), MAX_VALUE_BYTES as u64 + 2),
            ValueSource::File(path) => {
                read_files::read_bounded(Path::new(path), MAX_VALUE_BYTES + 1).map_err(io::Error::other)
            }
        });
    }
    for argument in set_env {
        inputs.set_env(argument, |variable| env.variables.get(variable).map(Into::into));
    }
}

/// The absolute path of a workspace.
pub(super) fn resolve_workspace(folder: &Path) -> Result<PathBuf, Error> {
    let refused =
        |why: String| Error::usage(format!("--workspace {}: {why}", folder.display()), "Name an existing folder.");
    let absolute = folder.canonicalize().map_err(|error| refused(error.to_string()))?;
    if !absolute.is_dir() {
        return Err(refused("it isn't a folder".into()));
    }
    require_utf8(&absolute)?;
    Ok(absolute)
}

/// Refuses a path that isn't UTF-8, since records are text.
pub(super) fn require_utf8(path: &Path) -> Result<(), Error> {
    if path.to_str().is_some() {
        return Ok(());
    }
    Err(Error::usage(
        format!("{}: this path isn't valid UTF-8, so a record can't contain it", path.display()),
        "Rename the file or folder, or use another one.",
    ))
}

/// Refuses a relative path if a symbolic link in it leads out of `folder`. Absolute paths and paths with `..` are allowed, as
/// the user chose them on purpose.
///
/// # Errors
/// Names the target of the link, with `hint` as the hint.
pub(super) fn reject_escaping_symlinks(folder: &Path, path: &Path, hint: &str) -> Result<(), Error> {
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Ok(());
    }
    let real = folder.canonicalize().map_err(Error::environment(format!("can't read {}", folder.display())))?;
    let mut reached = real.clone();
    for part in path.components() {
        reached.push(part);
        let shown = || path.display();
        match reached.canonicalize() {
            Ok(target) if target.starts_with(&real) => reached = target,
            Ok(target) => {
                let message = format!("`{}` is a symbolic link to {}, outside this folder", shown(), target.display());
                return Err(Error::usage(message, hint));
            }
            // A missing path can't lead anywhere, and nothing can be created behind a dangling link. Other errors are
            // reported when the folder is created.
            Err(error) if error.kind() == io::ErrorKind::NotFound || !reached.is_symlink() => return Ok(()),
            Err(error) => {
                let message = format!("`{}` can't be used: {error}", shown());
                return Err(Error::usage(message, hint));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_links_out_of_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir_all(inside.join("real")).unwrap();
        symlink("real", inside.join("within")).unwrap();
        symlink("..", inside.join("out")).unwrap();
        symlink("../absent", inside.join("dangling")).unwrap();
        fs::write(inside.join("file"), "").unwrap();
        let check = |path: &str| reject_escaping_symlinks(&inside, Path::new(path), "").is_ok();
        for (path, is_allowed) in [
            ("real", true),
            ("absent/below", true),
            ("file/below", true),
            ("within/below", true),
            ("../elsewhere", true),
            ("out", false),
            ("out/below", false),
            ("within/../out", true),
            ("dangling", true),
            ("dangling/below", true),
        ] {
            assert_eq!(check(path), is_allowed, "{path}");
        }
    }
}

/// Which columns of the rows are inputs.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct ColumnArgs {
    /// Use only these columns of the rows as inputs, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "ignore_columns")]
    pub(super) columns: Vec<String>,
    /// Use all columns but these as inputs, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) ignore_columns: Vec<String>,
}

impl ColumnArgs {
    /// The option as it is given, if it is.
    pub(super) fn word(&self) -> Option<String> {
        let names = |option, names: &[String]| (!names.is_empty()).then(|| format!("{option}={}", names.join(",")));
        names("--columns", &self.columns).or_else(|| names("--ignore-columns", &self.ignore_columns))
    }

    /// The same with the column of ids.
    pub(super) fn with_id<'a>(&'a self, id: Option<&'a str>) -> ColumnOptions<'a> {
        ColumnOptions { id, only: &self.columns, ignored: &self.ignore_columns }
    }
}

//! `legwork gather`: joins the results of maps in several folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::arguments::{ColumnArgs, format_parser, reject_escaping_symlinks};
use super::env::CliEnv;
use super::output::shell_quote;
use super::output_files::OutputFileArgs;
use super::read_files;
use crate::error::Error;
use crate::map::rows::{self, ColumnOptions, MAX_FILE_BYTES, RowFormat};
use crate::map::tables::RowState;
use crate::map::{self, GatherError, tables};
use crate::reports;

/// Options of `legwork gather`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if every row completed; 75 if a row is missing or can continue; else 5 if the environment or a provider failed, or a \
record is damaged, foreign or in conflict with another one; else 1 if a row failed, or 4 if rows only reached a \
limit. 2 for a usage error, 3 if the rows file is invalid.")]
pub(super) struct GatherArgs {
    /// Folders that are maps or have maps below them
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// The rows file: rows without a record are listed as missing, and the tables have its order
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// The column with the ids of the rows, as for the map
    #[arg(long, value_name = "COLUMN", requires = "rows")]
    id: Option<String>,
    #[command(flatten)]
    columns: ColumnArgs,
    /// The folder for results.jsonl, results.csv and report.html; default: the first DIR
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Write the results as JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The output format
    #[arg(long, default_value = "text", value_parser = format_parser(tables::GATHERED))]
    format: String,
}

pub(super) fn gather(options: &GatherArgs, env: &CliEnv) -> Result<u8, Error> {
    for folder in &options.folders {
        check_folder(folder)?;
    }
    let wanted = options
        .rows
        .as_deref()
        .map(|file| read_ids(file, options.columns.with_id(options.id.as_deref())))
        .transpose()?;
    let to = options.to.as_deref().unwrap_or(&options.folders[0]);
    let hint = "Remove the link, or name the folder of --to by the path that it leads to.";
    options.to.as_deref().map_or(Ok(()), |to| reject_escaping_symlinks(Path::new("."), to, hint))?;
    check_target(to)?;
    let junit = options.junit.as_deref().map(|path| OutputFileArgs::open_junit(path, None, options.rows.as_deref()));
    let junit = junit.transpose()?;
    fs::create_dir_all(to).map_err(|error| {
        Error::usage(format!("--to {}: {error}", to.display()), "Name a folder that you can write to.")
    })?;
    let mut files = map::gather(&options.folders, wanted.as_deref(), to, env.prices()?).map_err(gather_error)?;
    let failed = |source| Error::Environment { message: format!("can't write the tables in {}", to.display()), source };
    files.write().map_err(failed)?;
    junit.map_or(Ok(()), |junit| junit.write(&files.junit()))?;
    let table = &files.table;
    let text = reports::find(tables::GATHERED, &options.format)(table, env.console.stdout_display());
    env.console.print_formatted(&options.format, &text);
    let is_found = |id: &String| files.state(id).is_some_and(|state| state != RowState::Missing);
    if wanted.is_some_and(|wanted| !table.rows.is_empty() && !wanted.iter().any(is_found)) {
        let how = match &options.id {
            Some(_) => "check that --id names the same column as for the map",
            None => "if the map was started with --id COLUMN, give the same option here",
        };
        env.console.warning(&format!("no row of the file has a record: {how}"));
    }
    env.console.eprint(&format!("tables: {}", shell_quote(to)));
    Ok(table.exit_code())
}

fn check_folder(folder: &Path) -> Result<(), Error> {
    let why = match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it isn't a folder".to_owned(),
        Err(error) => read_files::io_error_text(&error),
    };
    Err(Error::usage(format!("{}: {why}", folder.display()), "Name folders of maps, such as RUNS/JOB/MAP."))
}

/// Refuses to write tables over a run's own report, between the records of a map, or over files of the user.
fn check_target(to: &Path) -> Result<(), Error> {
    let real = to.canonicalize().unwrap_or_else(|_| to.to_owned());
    let why = match () {
        () if real.join("events.jsonl").exists() => "it is the record of a run",
        () if real.ends_with("rows") && real.with_file_name("map.json").exists() => {
            "it is the folder of a map's records"
        }
        () if real.join("map.json").exists() || real.join("rows").is_dir() => return Ok(()),
        () => match tables::foreign_file(&real) {
            None => return Ok(()),
            Some(name) => &format!("{name} in it isn't from legwork and would be replaced"),
        },
    };
    Err(Error::usage(format!("--to {}: {why}", to.display()), "Name another folder for the tables with --to DIR."))
}

fn read_ids(file: &Path, columns: ColumnOptions<'_>) -> Result<Vec<String>, Error> {
    let content = read_files::read_bounded(file, MAX_FILE_BYTES)
        .map_err(|why| Error::Invalid(vec![read_files::unreadable_file(file, &why)]))?;
    let format = RowFormat::detect(file, &content);
    rows::read_ids(&file.to_string_lossy(), content, format, columns).map_err(Error::Invalid)
}

pub(super) fn gather_error(error: GatherError) -> Error {
    let message = error.to_string();
    match error {
        GatherError::NoMap(_) => {
            Error::usage(message, "Name folders of maps, such as RUNS/JOB/MAP, or folders above them.")
        }
        GatherError::OnlyTable(_) => Error::usage(message, "Name another folder for the tables with --to DIR."),
        GatherError::TooMany(_) => Error::usage(message, "Name the folders of the maps themselves."),
        GatherError::Folder { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Error::usage(message, "Name an existing folder.")
        }
        GatherError::Folder { source, .. } | GatherError::Write { source, .. } => {
            Error::Environment { message, source }
        }
    }
}

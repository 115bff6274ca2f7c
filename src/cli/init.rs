//! `legwork init`: a first job, with its schema beside it so that editors help.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

use super::CliEnv;
use super::symlink_guard::reject_escaping_symlinks;
use crate::error::Error;
use crate::{job, schema};

/// Options of `legwork init`.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// Name of the job
    #[arg(default_value = "first")]
    name: String,
    /// Folder of the jobs
    #[arg(long, value_name = "DIR", default_value = "jobs")]
    folder: PathBuf,
}

/// The schema's place beside the jobs, as their first line names it.
const SCHEMA_FILE: &str = "job.schema.json";

pub(super) fn init(options: &InitArgs, around: &CliEnv) -> Result<u8, Error> {
    if !job::is_name(&options.name) {
        return Err(Error::Usage {
            message: format!("`{}` can't be a job's name", options.name),
            hint: Some(
                "A name is made of lower-case letters, digits and `-`, at most 64, and begins with no `-`.".into(),
            ),
        });
    }
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| Error::Environment { message: format!("{} can't be written", path.display()), source }
    };
    let hint = "Remove the link, or name the folder that it leads to: --folder DIR.";
    reject_escaping_symlinks(&around.current_folder, &options.folder, hint)?;
    let file = options.folder.join(format!("{}.yaml", options.name));
    let schema_file = options.folder.join(SCHEMA_FILE);
    if !is_own_schema(&schema_file) {
        return Err(Error::Usage {
            message: format!("{} is there already, and isn't the schema of jobs", schema_file.display()),
            hint: Some("Name another folder: --folder DIR.".into()),
        });
    }
    fs::create_dir_all(&options.folder).map_err(failed(&options.folder))?;
    let written = fs::OpenOptions::new().write(true).create_new(true).open(&file);
    let mut new = match written {
        Ok(new) => new,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Usage {
                message: format!("{} is there already", file.display()),
                hint: Some("Give another name: legwork init NAME.".into()),
            });
        }
        Err(error) => return Err(failed(&file)(error)),
    };
    new.write_all(job_template(&options.name).as_bytes()).map_err(failed(&file))?;
    fs::write(&schema_file, format!("{:#}\n", schema::job_schema())).map_err(failed(&schema_file))?;
    around.console.eprint(&format!(
        "Wrote {file} and {schema} (for editors).\n\n  legwork validate {file}\n  legwork run {file} --dry-run\n  \
         ANTHROPIC_API_KEY=... legwork run {file}\n\nA run that went well can become a test of the job, which needs no \
         key:\n\n  ANTHROPIC_API_KEY=... legwork run {file} --save-case good\n  legwork test {file}",
        file = file.display(),
        schema = schema_file.display()
    ));
    Ok(0)
}

/// Whether the schema may be written: it isn't there, or is one of another version.
fn is_own_schema(schema_file: &Path) -> bool {
    if schema_file.is_symlink() {
        return false;
    }
    let Ok(written) = fs::read(schema_file) else { return !schema_file.exists() };
    let written = serde_json::from_slice::<Value>(&written).unwrap_or_default();
    written["title"] == schema::job_schema()["title"]
}

fn job_template(name: &str) -> String {
    format!(
        r#"# yaml-language-server: $schema={SCHEMA_FILE}
name: {name}
description: Says how this project is tested.

inputs:
  folder: {{ type: path, default: ., description: The folder to look at }}

model: anthropic/claude-sonnet-5-5

parent:
  prompt: |
    How is the project below `{{{{ inputs.folder }}}}` tested? Delegate the reading to the explorer, one task a question.
    Answer in at most ten lines: the framework, the command that runs all tests, and where the tests lie, each with
    the file that shows it.
  tools: [task]
  max_turns: 10

subagents:
  explorer:
    description: Reads files and answers one question about them, with the lines that prove it.
    tools: [read_file, glob, grep]
    max_turns: 20

limits:
  cost_usd: 0.50
  wall_clock: 10m
"#
    )
}

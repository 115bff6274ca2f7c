//! `legwork init`: writes a first job, and its schema for editors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

use super::arguments::reject_escaping_symlinks;
use super::env::CliEnv;
use crate::diagnostic::Source;
use crate::error::Error;
use crate::lints::{self, JobTrust, UserConfig};
use crate::{context_files, editor_schema, job};

/// Options of `legwork init`.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The name of the job
    #[arg(default_value = "first")]
    name: String,
    /// The folder for jobs
    #[arg(long, value_name = "DIR", default_value = "jobs")]
    folder: PathBuf,
}

/// The file name of the schema, to which the first line of a job refers.
const SCHEMA_FILE: &str = "job.schema.json";

pub(super) fn init(options: &InitArgs, env: &CliEnv) -> Result<u8, Error> {
    if !job::is_name(&options.name) {
        let form = "A name has at most 64 lower-case letters, digits and `-`, and doesn't start with `-`.";
        let stem = Path::new(&options.name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let near = stem.to_lowercase().replace(['_', ' '], "-");
        let near = job::is_name(&near).then(|| format!(" Write it as `legwork init {near}`."));
        return Err(Error::usage(
            format!("`{}` isn't a valid job name", options.name),
            format!("{form}{}", near.unwrap_or_default()),
        ));
    }
    let failed = |path: &Path| Error::environment(format!("can't write {}", path.display()));
    let hint = "Remove the link, or name its target: --folder DIR.";
    reject_escaping_symlinks(&env.current_folder, &options.folder, hint)?;
    let file = options.folder.join(format!("{}.yaml", options.name));
    let schema_file = options.folder.join(SCHEMA_FILE);
    if !can_write_schema(&schema_file) {
        return Err(Error::usage(
            format!("{} already exists and isn't the job schema", schema_file.display()),
            "Choose another folder: --folder DIR.",
        ));
    }
    fs::create_dir_all(&options.folder).map_err(failed(&options.folder))?;
    let mut new = fs::File::create_new(&file).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::usage(format!("{} already exists", file.display()), "Choose another name: legwork init NAME.")
        }
        _ => failed(&file)(error),
    })?;
    let context = proposed_context(&options.name, env);
    new.write_all(job_template(&options.name, context.unwrap_or_default()).as_bytes()).map_err(failed(&file))?;
    fs::write(&schema_file, format!("{:#}\n", editor_schema::job_schema())).map_err(failed(&schema_file))?;
    env.console.eprint(&format!(
        "Wrote {file} and {schema} (for editors).\n\n  legwork validate {file}\n  legwork run {file} --dry-run\n  \
         ANTHROPIC_API_KEY=... legwork run {file}\n\nSave a good run as a test of the job, which needs no key:\n\n  ANTHROPIC_API_KEY=... legwork run {file} --save-case good\n  legwork test {file}",
        file = file.display(),
        schema = schema_file.display()
    ));
    Ok(0)
}

/// The lines of a job that name `AGENTS.md`, if it is there and can be used as it is.
fn proposed_context(name: &str, env: &CliEnv) -> Option<&'static str> {
    const CONTEXT: &str = "\n# Files whose text every agent gets in its system prompt.\ncontext: [AGENTS.md]\n";
    let source = Source::new("job.yaml", job_template(name, CONTEXT));
    let workspace = env.workspace_files(&env.current_folder);
    let checked = lints::check_in(&source, None, JobTrust::Trusted, &UserConfig::default(), Some(&workspace));
    checked
        .findings
        .iter()
        .all(|finding| !context_files::RULES.iter().any(|rule| rule.code == finding.code))
        .then_some(CONTEXT)
}

/// Whether the schema can be written: the file doesn't exist, or is the job schema of any version.
fn can_write_schema(schema_file: &Path) -> bool {
    if schema_file.is_symlink() {
        return false;
    }
    let Ok(existing) = fs::read(schema_file) else { return !schema_file.exists() };
    let existing = serde_json::from_slice::<Value>(&existing).unwrap_or_default();
    existing["title"] == editor_schema::job_schema()["title"]
}

fn job_template(name: &str, context: &str) -> String {
    format!(
        r#"# yaml-language-server: $schema={SCHEMA_FILE}
name: {name}
description: Finds out how this project is tested.

inputs:
  folder: {{ type: path, default: ., description: The folder to examine }}

model: anthropic/claude-sonnet-5-5
{context}
parent:
  prompt: |
    How is the project in `{{{{ inputs.folder }}}}` tested? Delegate the reading to the explorer, one task per question.
    Answer in at most ten lines: the framework, the command that runs all tests, and where the tests are, each with
    the file that shows it.
  tools: [task]
  max_turns: 10

subagents:
  explorer:
    description: Reads files and answers one question about them, with the relevant lines.
    tools: [read_file, glob, grep]
    max_turns: 20

limits:
  cost_usd: 0.50
  wall_clock: 10m
"#
    )
}

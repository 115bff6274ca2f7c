//! What an engine is, what its file is made from, and quoting.

use crate::outputs::KindName;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value, context};

/// The exit code of a map in which some row can continue. Engines try it again; all other codes are final.
const RETRYABLE: u8 = 75;

/// What a file for an engine is made from.
#[derive(Debug, Clone)]
pub struct MapCommand<'a> {
    /// The name of the job.
    pub job: &'a str,
    /// The name of the map, if it isn't the default.
    pub name: Option<&'a str>,
    /// The words of the command without its shard: `legwork map JOB --rows FILE` and further options.
    pub words: &'a [String],
    /// The map's folder: OUT/JOB/MAP.
    pub folder: &'a str,
    /// The job file.
    pub job_file: &'a str,
    /// The kinds of the job's outputs, which are published after the map.
    pub outputs: &'a [KindName],
    /// The rows file.
    pub rows: &'a str,
    /// The column with the ids of the rows.
    pub id: Option<&'a str>,
    /// The option that names the columns that are inputs, or those that aren't.
    pub columns: Option<&'a str>,
    /// How many processes share the rows.
    pub shards: u32,
    /// The variables with secrets that the processes need.
    pub secrets: &'a [String],
    /// The other variables that the job uses.
    pub variables: &'a [String],
    /// Whether the processes need the user's `providers.toml`.
    pub needs_providers_file: bool,
    /// The container image, for engines that run containers.
    pub image: Option<&'a str>,
}

impl MapCommand<'_> {
    /// The values that all templates have. Those for shells and for YAML are quoted.
    fn values(&self) -> Value {
        context! {
            job => self.job,
            quoted_job => yaml_string(self.job),
            command => command_line(self.words),
            folder => shell_word(self.folder),
            job_file => shell_word(self.job_file),
            publishes => !self.outputs.is_empty(),
            gather_options => self.gather_options(),
            shards => self.shards,
            secrets => self.secrets.to_vec(),
            variables => self.variables.join(", "),
            needs_providers_file => self.needs_providers_file,
            image => yaml_string(self.image.unwrap_or_default()),
            retryable => RETRYABLE,
        }
    }

    /// The options of `legwork gather` that describe the rows, as words for a shell.
    pub(super) fn gather_options(&self) -> String {
        // With `=`, a column whose name begins with `-` isn't read as an option.
        let id = self.id.map(|column| format!(" {}", shell_word(&format!("--id={column}")))).unwrap_or_default();
        let columns = self.columns.map(|option| format!(" {}", shell_word(option))).unwrap_or_default();
        format!("--rows {}{id}{columns}", shell_word(self.rows))
    }
}

/// An engine that legwork can write a file for.
#[derive(Debug)]
pub struct Engine {
    /// Its name on the command line.
    pub name: &'static str,
    /// How many shards it can start at most.
    pub max_shards: u32,
    /// Whether it runs containers, so that it needs an image.
    pub needs_image: bool,
    /// Whether its processes share the folder of the map, and with it the ledger of the map's limits.
    pub shares_folder: bool,
    /// Whether its processes don't share files with this machine and have only those of the repository.
    pub is_elsewhere: bool,
    /// Whether its file publishes the outputs of the job.
    pub publishes: bool,
    /// The template of its file.
    pub(super) template: &'static str,
    /// The values that only this template has, or has instead of those of all.
    pub(super) values: fn(&MapCommand<'_>) -> Value,
}

impl Engine {
    /// Makes the file that starts a map.
    ///
    /// # Errors
    /// If the template has a mistake.
    pub fn emit(&self, map: &MapCommand<'_>) -> Result<String, minijinja::Error> {
        let mut templates = Environment::new();
        // Lines with nothing but a tag leave no line.
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?;
        templates.set_syntax(syntax);
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        let values = context! { ..(self.values)(map), ..map.values() };
        templates.render_str(self.template, values)
    }
}

/// Quotes a word for a shell, if it needs quotes.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A command line for a shell.
pub(super) fn command_line(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// A text as a double-quoted YAML string.
pub(super) fn yaml_string(text: &str) -> String {
    // A JSON string is also a YAML string; strings can be written as JSON.
    serde_json::to_string(text).unwrap_or_default()
}

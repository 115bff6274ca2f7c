//! Engines that start many processes: which part of the rows a process has to run, and the files that submit a map to an
//! engine.

mod github;
mod gitlab;
mod kubernetes;
mod shard;
mod slurm;
#[cfg(test)]
mod tests;

pub use self::shard::{Shard, ShardError};

/// The exit code of a map in which some row can go on. Engines try it again; all other codes are final.
const RETRYABLE: u8 = 75;

/// What a file for an engine is made from.
#[derive(Debug, Clone)]
pub struct MapCommand<'a> {
    /// The name of the job.
    pub job: &'a str,
    /// The words of the command without its shard: `legwork map JOB --rows FILE` and further options.
    pub words: &'a [String],
    /// The folder with the records of runs.
    pub out: &'a str,
    /// The map's folder: OUT/JOB/MAP.
    pub folder: &'a str,
    /// The file of rows.
    pub rows: &'a str,
    /// How many processes share the rows.
    pub shards: u32,
    /// The variables with secrets that the processes need.
    pub secrets: &'a [String],
    /// The container image, for engines that run containers.
    pub image: Option<&'a str>,
}

/// An engine that legwork can write a file for.
#[derive(Debug)]
pub struct Engine {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the file is, in a few words.
    pub about: &'static str,
    /// How many shards it can start at most.
    pub max_shards: u32,
    /// Whether it runs containers, so that it needs an image.
    pub needs_image: bool,
    /// Writes the file.
    pub emit: fn(&MapCommand<'_>) -> String,
}

/// All engines.
pub const ENGINES: &[Engine] = &[slurm::ENGINE, kubernetes::ENGINE, github::ENGINE, gitlab::ENGINE];

/// Finds an engine by its name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.name == name)
}

/// Quotes a word for a shell, if it needs quotes.
fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A command line for a shell.
fn command_line(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// A text as a double-quoted YAML string.
fn yaml_string(text: &str) -> String {
    // A JSON string is also a YAML string; strings can be written as JSON.
    serde_json::to_string(text).unwrap_or_default()
}

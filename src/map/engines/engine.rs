//! What an engine is, what its file is made from, and quoting.

/// The exit code of a map in which some row can go on. Engines try it again; all other codes are final.
pub(super) const RETRYABLE: u8 = 75;

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
    /// The file of rows.
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
    /// The variables with secrets, for a sentence.
    pub(super) fn secret_names(&self) -> String {
        match self.secrets {
            [] => "no keys".to_owned(),
            names => names.join(", "),
        }
    }

    /// Comments about what has to be prepared in addition to keys, if anything. The arguments say how the processes of this
    /// engine get variables and files.
    pub(super) fn preparation(&self, variables: &str, file: &str) -> String {
        let mut comments = String::new();
        if !self.variables.is_empty() {
            let names = self.variables.join(", ");
            comments.push_str(&format!("# The job also uses variables that aren't secrets ({names}): {variables}.\n"));
        }
        if self.needs_providers_file {
            comments.push_str(&format!(
                "# The job uses your providers.toml, so {file}, with the programs and files that it names:\n\
                 # ~/.config/legwork/providers.toml, or legwork/providers.toml in $XDG_CONFIG_HOME.\n"
            ));
        }
        comments
    }

    /// The shell command that joins the results of all shards in folders, which are words for a shell.
    pub(super) fn gather_command(&self, folders: &str) -> String {
        // With `=`, a column whose name begins with `-` isn't read as an option.
        let id = self.id.map(|column| format!(" {}", shell_word(&format!("--id={column}")))).unwrap_or_default();
        let columns = self.columns.map(|option| format!(" {}", shell_word(option))).unwrap_or_default();
        format!("legwork gather {folders} --rows {}{id}{columns}", shell_word(self.rows))
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
    /// Writes the file.
    pub emit: fn(&MapCommand<'_>) -> String,
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

//! The environment variables that commands get.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::git;
use crate::sandbox::programs;

/// Variables that every command gets, in addition to `LC_*`. They hold paths and locale settings, but no secrets.
const ALWAYS_PASSED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// Variables that no job can grant: the providers' keys, their base URLs, which can contain a password, and the files with
/// which a step of a GitHub workflow affects later steps.
pub const WITHHELD: [&str; 13] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "GITHUB_ENV",
    "GITHUB_PATH",
    "GITHUB_OUTPUT",
    "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
];

/// Keeps git from writing a refreshed index after `git status` and `git diff`, and from asking for a password.
const GIT_VARIABLES: [(&str, &str); 2] = [("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0")];

/// Keeps git from writing more than it was asked to: a refreshed index, maintenance after `git commit`, the resolutions of
/// conflicts and a monitor's files, which change more of a git folder than commands are allowed to, and stashes that only an
/// unfinished rebase or merge knows.
const GIT_SETTINGS: [(&str, &str); 7] = [
    ("diff.autoRefreshIndex", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("rerere.enabled", "false"),
    ("core.fsmonitor", "false"),
    ("rebase.autoStash", "false"),
    ("merge.autoStash", "false"),
];

/// Programs that wait for a person, unless the job grants the variable. A configured editor such as `vi` would wait until the
/// timeout; git reads these variables first.
const INTERACTIVE_PROGRAMS: [(&str, &str); 7] = [
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    // Called by name, vim waits for keys from stderr, if its own commands (`vim -c wq`) haven't ended it.
    ("VIMINIT", "autocmd VimEnter * if !has('ttyin') | cquit | endif"),
];

/// Whether every command gets a variable.
pub fn is_always_passed(name: &str) -> bool {
    ALWAYS_PASSED.contains(&name) || name.starts_with("LC_")
}

/// The environment of a command: these variables and no others.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    shell: OnceLock<PathBuf>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets.
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Environment {
    /// Takes the variables that are always passed and those that the job grants, except [`WITHHELD`], from a snapshot of our
    /// own environment, and adds each secret input `name` as `INPUT_NAME`.
    pub fn new(snapshot: &BTreeMap<String, String>, granted: &[String], secrets: &[(String, String)]) -> Self {
        let is_passed = |name: &str| {
            let is_granted = is_always_passed(name) || granted.iter().any(|granted| granted == name);
            is_granted && !WITHHELD.contains(&name)
        };
        let mut variables: BTreeMap<_, _> = snapshot
            .iter()
            .filter(|(name, _)| is_passed(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        // With a relative folder in PATH, or without PATH, a program in the workspace could be run instead of the intended one.
        let path = variables.get("PATH").map_or("", String::as_str).split(':');
        let mut path = path.filter(|folder| folder.starts_with('/')).collect::<Vec<_>>().join(":");
        if path.is_empty() {
            path = "/usr/local/bin:/usr/bin:/bin".to_owned();
        }
        variables.insert("PATH".to_owned(), path);
        // There is no terminal, so programs shouldn't use escape sequences.
        variables.insert("TERM".to_owned(), "dumb".to_owned());
        variables.extend(GIT_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables.extend(git_settings(snapshot));
        for (name, program) in INTERACTIVE_PROGRAMS {
            variables.entry(name.to_owned()).or_insert_with(|| program.to_owned());
        }
        variables.extend(secrets.iter().map(|(name, value)| (format!("INPUT_{}", name.to_uppercase()), value.clone())));
        Self { variables, shell: OnceLock::new() }
    }

    /// The same environment with more variables, which replace those of the same name.
    #[must_use]
    pub fn with_variables(&self, more: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut environment = self.clone();
        environment.variables.extend(more);
        environment
    }

    /// The path of `bash`, which is searched for once. Skips folders of `PATH` that are relative, or that commands can write to.
    pub(crate) fn shell(&self, workspace: &Path, writable: &[PathBuf]) -> &Path {
        self.shell.get_or_init(|| {
            let path = self.variables.get("PATH").map_or("", String::as_str);
            let writable = [&[workspace.to_owned()], writable].concat();
            programs::find("bash", std::env::split_paths(path), &writable).unwrap_or_else(|| "/bin/bash".into())
        })
    }

    /// The variables, by name.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }
}

/// The variables that give git its settings. The user's own configuration is in the home folder, which commands don't see; of
/// it they get the repositories that the user trusts although they belong to someone else.
fn git_settings(snapshot: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let folder = |name: &str| snapshot.get(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let trusted = folder("HOME").map(|home| git::safe_directories(&home, folder("XDG_CONFIG_HOME").as_deref()));
    let trusted = trusted.into_iter().flatten().map(|folder| ("safe.directory", folder));
    let settings: Vec<_> =
        GIT_SETTINGS.into_iter().map(|(key, value)| (key, value.to_owned())).chain(trusted).collect();
    let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string())];
    for (number, (key, value)) in settings.into_iter().enumerate() {
        variables.push((format!("GIT_CONFIG_KEY_{number}"), key.to_owned()));
        variables.push((format!("GIT_CONFIG_VALUE_{number}"), value));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_is_never_taken_from_the_workspace() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::TempDir::new().unwrap();
        for name in ["not-executable", "bin", "workspace/bin", "elsewhere"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let not_executable = folder.path().join("not-executable/bash");
        std::fs::write(&not_executable, "").unwrap();
        std::fs::set_permissions(&not_executable, std::fs::Permissions::from_mode(0o644)).unwrap();
        symlink("/bin/sh", folder.path().join("bin/bash")).unwrap();
        symlink("/bin/sh", folder.path().join("workspace/bin/bash")).unwrap();
        std::fs::copy("/bin/sh", folder.path().join("workspace/bin/sh")).unwrap();
        symlink("../workspace/bin/sh", folder.path().join("elsewhere/bash")).unwrap();
        symlink("workspace/bin", folder.path().join("link")).unwrap();
        let found = |path: &str| {
            let snapshot = [("PATH".to_owned(), path.replace("DIR", folder.path().to_str().unwrap()))].into();
            Environment::new(&snapshot, &[], &[]).shell(&folder.path().join("workspace"), &[]).to_owned()
        };
        assert_eq!(found("::.:tools:DIR/missing:DIR/not-executable:DIR/bin"), folder.path().join("bin/bash"));
        assert_eq!(found("DIR/workspace/bin:DIR/link:DIR/elsewhere:DIR/bin"), folder.path().join("bin/bash"));
        assert!(found(".:bin:").is_absolute());
    }

    #[test]
    fn only_absolute_folders_stay_in_path() {
        let path = |given: &str| {
            let snapshot = [("PATH".to_owned(), given.to_owned())].into();
            Environment::new(&snapshot, &[], &[]).variables()["PATH"].clone()
        };
        assert_eq!(path(".:/opt/a:bin::/usr/bin:"), "/opt/a:/usr/bin");
        assert_eq!(path("node_modules/.bin"), "/usr/local/bin:/usr/bin:/bin");
    }

    #[test]
    fn commands_get_harmless_and_granted_variables_and_secret_inputs() {
        let snapshot =
            ["PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "CARGO_HOME", "ANTHROPIC_API_KEY", "GITHUB_ENV", "BASH_ENV"];
        let snapshot = snapshot.iter().map(|name| ((*name).to_owned(), format!("value of {name}"))).collect();
        let granted = ["CARGO_HOME", "ANTHROPIC_API_KEY", "GITHUB_ENV", "NOT_SET"].map(String::from);
        let environment = Environment::new(&snapshot, &granted, &[("token".into(), "hunter2".into())]);
        let names = environment.variables().keys().map(String::as_str);
        let names: Vec<_> = names.filter(|name| !name.starts_with("GIT_")).collect();
        let expected = ["CARGO_HOME", "EDITOR", "INPUT_TOKEN", "LC_ALL", "PAGER", "PATH", "TERM", "VIMINIT", "VISUAL"];
        assert_eq!(names, expected);
        assert_eq!(environment.variables()["INPUT_TOKEN"], "hunter2");
        assert!(!format!("{environment:?}").contains("hunter2"));
    }

    #[test]
    fn git_trusts_the_repositories_that_the_user_trusts() {
        let home = tempfile::TempDir::new().unwrap();
        let config = "[safe]\n\tdirectory = /srv/old\n\tdirectory =\n\tdirectory = /srv/a b\n\tdirectory = ~/x\n\
                      [include]\n\tpath = more\n";
        std::fs::write(home.path().join(".gitconfig"), config).unwrap();
        std::fs::write(home.path().join("more"), "[safe]\n\tdirectory = *\n").unwrap();
        let snapshot = [("HOME".to_owned(), home.path().display().to_string())].into();
        let environment = Environment::new(&snapshot, &[], &[]);
        let variables = environment.variables();
        let count: usize = variables["GIT_CONFIG_COUNT"].parse().unwrap();
        let settings: Vec<_> = (GIT_SETTINGS.len()..count)
            .map(|number| {
                assert_eq!(variables[&format!("GIT_CONFIG_KEY_{number}")], "safe.directory");
                variables[&format!("GIT_CONFIG_VALUE_{number}")].clone()
            })
            .collect();
        assert_eq!(settings, ["/srv/a b".to_owned(), home.path().join("x").display().to_string(), "*".to_owned()]);
        assert!(!variables.contains_key(&format!("GIT_CONFIG_KEY_{count}")));
    }
}

//! What commands see of the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::sandbox::programs;

/// Variables that every command may see, besides `LC_*`: they say where programs are and how to speak, and hold no secret.
const ALWAYS_PASSED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// Variables that no job can grant: the providers' keys and addresses, which can hold a password, and the files by which
/// a step of a GitHub workflow changes later steps.
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

/// What keeps git from writing what nobody asked for: a fresher index after `git status` and `git diff`, and housekeeping
/// after `git commit`, which changes more of a git folder than commands may.
const GIT_VARIABLES: [(&str, &str); 8] = [
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_CONFIG_COUNT", "3"),
    ("GIT_CONFIG_KEY_0", "diff.autoRefreshIndex"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("GIT_CONFIG_KEY_1", "gc.auto"),
    ("GIT_CONFIG_VALUE_1", "0"),
    ("GIT_CONFIG_KEY_2", "maintenance.auto"),
    ("GIT_CONFIG_VALUE_2", "false"),
];

/// Whether every command may see a variable.
pub fn is_always_passed(name: &str) -> bool {
    ALWAYS_PASSED.contains(&name) || name.starts_with("LC_")
}

/// The variables that a command starts with, and nothing else.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    shell: OnceLock<PathBuf>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values can be secrets.
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Environment {
    /// Takes from a snapshot of our own environment the harmless few and what the job grants ([`WITHHELD`] aside), and
    /// adds each secret input `name` as `INPUT_NAME`.
    pub fn from(snapshot: &BTreeMap<String, String>, granted: &[String], secrets: &[(String, String)]) -> Self {
        let visible = |name: &str| {
            let named = is_always_passed(name) || granted.iter().any(|known| known == name);
            named && !WITHHELD.contains(&name)
        };
        let mut variables: BTreeMap<_, _> = snapshot
            .iter()
            .filter(|(name, _)| visible(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        // A relative folder would find a program of the workspace in the place of the one that is meant; so would a PATH
        // without folders.
        let path = variables.get("PATH").map_or("", String::as_str).split(':');
        let mut path = path.filter(|folder| folder.starts_with('/')).collect::<Vec<_>>().join(":");
        if path.is_empty() {
            path = "/usr/local/bin:/usr/bin:/bin".to_owned();
        }
        variables.insert("PATH".to_owned(), path);
        // There is no terminal, so nothing should try to paint on one.
        variables.insert("TERM".to_owned(), "dumb".to_owned());
        for (name, value) in GIT_VARIABLES {
            variables.insert(name.to_owned(), value.to_owned());
        }
        for (name, value) in secrets {
            variables.insert(format!("INPUT_{}", name.to_uppercase()), value.clone());
        }
        Self { variables, shell: OnceLock::new() }
    }

    /// The same environment with more variables; they replace those of the same name.
    #[must_use]
    pub fn with_variables(&self, more: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut environment = self.clone();
        environment.variables.extend(more);
        environment
    }

    /// Where `bash` is: looked for once. Folders of `PATH` are passed over that are relative, or that lie in the workspace
    /// or another folder which commands may change.
    pub(crate) fn shell(&self, workspace: &Path, writable: &[PathBuf]) -> &Path {
        self.shell.get_or_init(|| {
            let path = self.variables.get("PATH").map_or("", String::as_str);
            let writable = [&[workspace.to_owned()], writable].concat();
            programs::find("bash", std::env::split_paths(path), &writable).unwrap_or_else(|| "/bin/bash".into())
        })
    }

    /// The variables by name.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_is_never_one_of_the_workspace() {
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
            Environment::from(&snapshot, &[], &[]).shell(&folder.path().join("workspace"), &[]).to_owned()
        };
        assert_eq!(found("::.:tools:DIR/missing:DIR/not-executable:DIR/bin"), folder.path().join("bin/bash"));
        assert_eq!(found("DIR/workspace/bin:DIR/link:DIR/elsewhere:DIR/bin"), folder.path().join("bin/bash"));
        assert!(found(".:bin:").is_absolute());
    }

    #[test]
    fn only_absolute_folders_are_searched_for_programs() {
        let path = |given: &str| {
            let snapshot = [("PATH".to_owned(), given.to_owned())].into();
            Environment::from(&snapshot, &[], &[]).variables()["PATH"].clone()
        };
        assert_eq!(path(".:/opt/a:bin::/usr/bin:"), "/opt/a:/usr/bin");
        assert_eq!(path("node_modules/.bin"), "/usr/local/bin:/usr/bin:/bin");
    }

    #[test]
    fn commands_see_the_harmless_few_what_was_granted_and_secret_inputs() {
        let snapshot =
            ["PATH", "LC_ALL", "AWS_SECRET_ACCESS_KEY", "CARGO_HOME", "ANTHROPIC_API_KEY", "GITHUB_ENV", "BASH_ENV"];
        let snapshot = snapshot.iter().map(|name| ((*name).to_owned(), format!("value of {name}"))).collect();
        let granted = ["CARGO_HOME", "ANTHROPIC_API_KEY", "GITHUB_ENV", "NOT_SET"].map(String::from);
        let environment = Environment::from(&snapshot, &granted, &[("token".into(), "hunter2".into())]);
        let names = environment.variables().keys().map(String::as_str);
        let names: Vec<_> = names.filter(|name| !name.starts_with("GIT_")).collect();
        assert_eq!(names, ["CARGO_HOME", "INPUT_TOKEN", "LC_ALL", "PATH", "TERM"]);
        assert_eq!(environment.variables()["INPUT_TOKEN"], "hunter2");
        assert!(!format!("{environment:?}").contains("hunter2"));
    }
}

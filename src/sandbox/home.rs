//! The home folder that commands see: empty except for toolchains.

use std::path::{Path, PathBuf};

/// A folder of toolchains in the home folder: its path, the files and folders in it that are hidden because they contain
/// credentials, and the configuration files in it that are hidden if they contain one; `*` matches any one folder. Commands can
/// make files beside the folders that a `*` at the end of the path matches.
type Toolchain = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Lower-case words that indicate a credential in a configuration file.
const CREDENTIAL_WORDS: [&str; 4] = ["token", "secret", "password", "_auth"];
/// The largest configuration file that is searched for credentials, in bytes. Larger ones are hidden.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// What of the home folder commands can read. The book prints it (docs/src/sandbox.md).
const TOOLCHAINS: &[Toolchain] = &[
    (".asdf", &[], &["installs/nodejs/*/etc/npmrc"]),
    (".bun", &[], &[]),
    (".cabal/bin", &[], &[]),
    (".cargo", &["credentials", "credentials.toml"], &["config", "config.toml"]),
    (".deno", &[], &[]),
    (".dotnet", &["corefx/cryptography"], &[]),
    (".elan", &[], &[]),
    (".fnm", &[], &["node-versions/*/installation/etc/npmrc"]),
    (".gem/ruby", &[], &[]),
    (".ghcup", &[], &[]),
    (".goenv", &[], &[]),
    (".jenv", &[], &[]),
    (".juliaup", &[], &[]),
    (".local/bin", &[], &[]),
    (".local/lib", &[], &[]),
    (".local/share/fnm", &[], &["node-versions/*/installation/etc/npmrc"]),
    (".local/share/mise", &[], &["installs/node/*/etc/npmrc"]),
    (".local/share/pipx", &[], &[]),
    (".local/share/pnpm", &[], &[]),
    // Not the whole folder: it has credentials, and uvx makes files in it.
    (".local/share/uv/python/*", &[], &[]),
    (".local/share/uv/tools/*", &[], &[]),
    (".m2/repository", &[], &[]),
    (".nodenv", &[], &["versions/*/etc/npmrc"]),
    (".nvm", &[], &["versions/node/*/etc/npmrc"]),
    (".opam", &[], &[]),
    (".phpenv", &[], &[]),
    (".pixi", &[], &[]),
    (".proto", &[], &[]),
    (".pyenv", &[], &[]),
    (".rbenv", &[], &[]),
    (".rustup", &[], &[]),
    (".rvm", &[], &[]),
    (".sdkman", &[], &[]),
    (".stack", &["upload"], &["config.yaml"]),
    (".swiftly", &[], &[]),
    (".volta", &[], &["tools/image/node/*/etc/npmrc"]),
    ("go", &[], &[]),
    ("miniconda3", &[], &[".condarc", "condarc", "envs/*/.condarc"]),
    ("miniforge3", &[], &[".condarc", "condarc", "envs/*/.condarc"]),
];

/// The toolchains that exist, as absolute paths, with the hidden paths in each.
pub fn toolchains(home: &Path) -> impl Iterator<Item = (PathBuf, Vec<PathBuf>)> {
    let existing = TOOLCHAINS.iter().flat_map(|(path, hidden, config_files)| {
        let folders = match path.strip_suffix("/*") {
            Some(parent) => children(&home.join(parent)),
            None => vec![home.join(path)],
        };
        folders.into_iter().map(move |path| (path, hidden, config_files))
    });
    existing.filter(|(path, ..)| path.is_dir()).map(|(path, hidden, config_files)| {
        let hidden = hidden.iter().map(|name| path.join(name)).filter(|path| path.exists());
        let configs = config_files.iter().flat_map(|name| expand(&path, name));
        let configs = configs.filter(|path| contains_credential(path));
        let hidden = hidden.chain(configs).collect();
        (path, hidden)
    })
}

/// The most folders that a `*` matches.
const MAX_MATCHES: usize = 1_000;

/// The entries of a folder.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_MATCHES);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Expands a pattern with at most one `*`.
fn expand(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once("*/") else { return vec![folder.join(pattern)] };
    let entries = std::fs::read_dir(folder.join(before)).into_iter().flatten().flatten().take(MAX_MATCHES);
    entries.map(|entry| entry.path().join(after)).collect()
}

/// Whether a configuration file seems to contain a credential: one of the words, or a user name in a URL. A file that can't be
/// read counts as one that does.
fn contains_credential(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else { return path.symlink_metadata().is_ok() };
    if !metadata.is_file() || metadata.len() > MAX_CONFIG_BYTES {
        return true;
    }
    let Ok(text) = std::fs::read(path) else { return true };
    let text = String::from_utf8_lossy(&text).to_lowercase();
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    lines.into_iter().any(|line| {
        let address = line.split("://").skip(1).any(|rest| {
            let authority = rest.split(['/', '?', '#', '"', '\'', ' ']).next().unwrap_or_default();
            // anaconda.org accepts a token as `/t/TOKEN/`.
            authority.contains('@') || rest.contains("/t/")
        });
        address || CREDENTIAL_WORDS.iter().any(|word| line.contains(word))
    })
}

/// The toolchains' paths without the hidden ones, for a sandbox that can't hide single paths: a folder with a
/// hidden path in it is replaced by its other entries.
pub fn readable_paths(home: &Path) -> Vec<PathBuf> {
    let mut readable = Vec::new();
    for (path, hidden) in toolchains(home) {
        add_readable(path, &hidden, &mut readable);
    }
    readable
}

/// Adds a path, or its entries if something in it is hidden.
fn add_readable(path: PathBuf, hidden: &[PathBuf], readable: &mut Vec<PathBuf>) {
    if hidden.contains(&path) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
        readable.push(path);
        return;
    }
    for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
        add_readable(entry.path(), hidden, readable);
    }
}

/// Links the toolchains of one home folder, and `opened` paths in it, into another home folder, unless something is there.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn link_toolchains(home: &Path, other: &Path, opened: &[PathBuf]) {
    for path in toolchains(home).map(|(path, _)| path).chain(opened.iter().cloned()) {
        // If the home folder itself is opened, commands see it at its own path.
        let Some(name) = path.strip_prefix(home).ok().filter(|name| name.file_name().is_some()) else { continue };
        let link = other.join(name);
        if let Some(above) = link.parent() {
            // If this fails, the command will report that the toolchain is missing.
            let _ = std::fs::create_dir_all(above);
        }
        // Probing bubblewrap may have left an empty folder as a mount point.
        let _ = std::fs::remove_dir(&link);
        let _ = std::os::unix::fs::symlink(&path, link);
    }
}

/// Whether an entry of `PATH` can be shown: not if it is the home folder or contains it.
pub fn is_safe_path_dir(entry: &Path, home: Option<&Path>) -> bool {
    entry.parent().is_some() && home.is_none_or(|home| !home.starts_with(entry))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_with_credentials_are_replaced_by_their_other_entries() {
        let home = tempfile::tempdir().unwrap();
        for path in [".cargo/bin", ".rustup/toolchains", ".ssh"] {
            fs::create_dir_all(home.path().join(path)).unwrap();
        }
        fs::write(home.path().join(".cargo/config.toml"), "").unwrap();
        let names = |mut found: Vec<PathBuf>| {
            found.sort();
            let names = found.iter().map(|path| path.strip_prefix(home.path()).unwrap().display().to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(readable_paths(home.path())), [".cargo", ".rustup"]);
        fs::write(home.path().join(".cargo/credentials.toml"), "token").unwrap();
        assert_eq!(names(readable_paths(home.path())), [".cargo/bin", ".cargo/config.toml", ".rustup"]);
        let left_out: Vec<_> = toolchains(home.path()).flat_map(|(_, without)| without).collect();
        assert_eq!(names(left_out), [".cargo/credentials.toml"]);
    }

    #[test]
    fn credentials_deep_in_a_toolchain_are_hidden() {
        let home = tempfile::tempdir().unwrap();
        for (path, text) in [
            (".stack/upload/credentials.json", "{}"),
            (".stack/programs/ghc", ""),
            (".dotnet/corefx/cryptography/x509stores/my/key.pfx", ""),
            (".dotnet/corefx/other", ""),
            (".local/share/uv/credentials/index.toml", ""),
            (".local/share/uv/python/cpython-3.14/bin/python", ""),
            (".local/share/uv/tools/ruff/bin/ruff", ""),
            (".local/share/uv/tools/.lock", ""),
            (".nvm/versions/node/v24.1.0/etc/npmrc", "//registry.npmjs.org/:_authToken=npm_123\n"),
            (".nvm/versions/node/v24.1.0/bin/node", ""),
        ] {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut found: Vec<_> = readable_paths(home.path())
            .into_iter()
            .map(|path| path.strip_prefix(home.path()).unwrap().display().to_string())
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                ".dotnet/corefx/other",
                ".local/share/uv/python/cpython-3.14",
                ".local/share/uv/tools/ruff",
                ".nvm/versions/node/v24.1.0/bin",
                ".stack/programs",
            ]
        );
    }

    #[test]
    fn a_configuration_file_is_hidden_only_if_it_contains_a_credential() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        for (text, hidden) in [
            ("[build]\njobs = 4\n", false),
            ("# token = 'x'\n", false),
            ("[source.x]\nregistry = \"sparse+https://mirror.example/index/\"\n", false),
            ("[registries.x]\ntoken = 'x'\n", true),
            ("channels:\n  - https://conda.anaconda.org/t/me-123/main\n", true),
            ("//registry.npmjs.org/:_authToken=npm_123\n", true),
            ("[registry]\nsecret-key = 'x'\n", true),
            ("[http]\nproxy = \"http://me:pass@proxy.example:80\"\n", true),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(contains_credential(&file), hidden, "{text}");
        }
        assert!(contains_credential(folder.path()), "a folder can't be read");
        assert!(!contains_credential(&folder.path().join("absent")));
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        assert!(contains_credential(&folder.path().join("link")));
    }

    #[test]
    fn the_book_lists_the_toolchains() {
        let page = include_str!("../../docs/src/sandbox.md");
        let (_, rest) = page.split_once("<!-- The table in src/sandbox/home.rs. -->").unwrap();
        let (list, rest) = rest.trim_start().split_once("\n\n").unwrap();
        let listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, TOOLCHAINS.iter().map(|(path, ..)| *path).collect::<Vec<_>>());
        for secret in TOOLCHAINS.iter().flat_map(|(_, hidden, config_files)| hidden.iter().chain(*config_files)) {
            let name = secret.rsplit_once("*/").map_or(*secret, |(_, name)| name);
            assert!(rest.contains(&format!("`{name}`")), "{secret}");
        }
    }

    #[test]
    fn a_path_entry_that_contains_the_home_folder_is_not_safe() {
        let home = Some(Path::new("/home/someone"));
        for (entry, harmless) in [("/home/someone/bin", true), ("/home/someone", false), ("/home", false), ("/", false)]
        {
            assert_eq!(is_safe_path_dir(Path::new(entry), home), harmless, "{entry}");
        }
    }
}

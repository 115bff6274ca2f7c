//! The home folder that commands see: an empty one, but for toolchains.

use std::path::{Path, PathBuf};

/// A folder of toolchains below the home folder, without secrets.
#[derive(Debug, Clone, Copy)]
pub struct Toolchain {
    /// The path from the home folder.
    pub path: &'static str,
    /// What in it is left out, for it can hold a secret.
    pub without: &'static [&'static str],
}

const fn whole(path: &'static str) -> Toolchain {
    Toolchain { path, without: &[] }
}

/// What of the home folder commands can read. The README prints it.
pub const TOOLCHAINS: &[Toolchain] = &[
    whole(".asdf"),
    whole(".bun"),
    whole(".cabal/bin"),
    Toolchain { path: ".cargo", without: &["credentials", "credentials.toml"] },
    whole(".deno"),
    whole(".dotnet"),
    whole(".elan"),
    whole(".fnm"),
    whole(".gem/ruby"),
    whole(".ghcup"),
    whole(".goenv"),
    whole(".jenv"),
    whole(".juliaup"),
    whole(".local/bin"),
    whole(".local/lib"),
    whole(".local/share/fnm"),
    whole(".local/share/mise"),
    whole(".local/share/pipx"),
    whole(".local/share/pnpm"),
    whole(".local/share/uv"),
    whole(".m2/repository"),
    whole(".nodenv"),
    whole(".nvm"),
    whole(".opam"),
    whole(".phpenv"),
    whole(".pixi"),
    whole(".proto"),
    whole(".pyenv"),
    whole(".rbenv"),
    whole(".rustup"),
    whole(".rvm"),
    whole(".sdkman"),
    whole(".stack"),
    whole(".swiftly"),
    whole(".volta"),
    whole("go"),
    whole("miniconda3"),
    whole("miniforge3"),
];

/// The toolchains that are there, absolute, with what is left out of each.
pub fn toolchains(home: &Path) -> impl Iterator<Item = (PathBuf, Vec<PathBuf>)> {
    TOOLCHAINS.iter().filter_map(|toolchain| {
        let path = home.join(toolchain.path);
        let without = toolchain.without.iter().map(|name| path.join(name)).filter(|path| path.exists()).collect();
        path.is_dir().then_some((path, without))
    })
}

/// The same as what may be read, where nothing can be left out of a folder: a folder that lacks something is given entry
/// by entry.
pub fn readable(home: &Path) -> Vec<PathBuf> {
    let mut readable = Vec::new();
    for (path, without) in toolchains(home) {
        if without.is_empty() {
            readable.push(path);
            continue;
        }
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        readable.extend(entries.map(|entry| entry.path()).filter(|path| !without.contains(path)));
    }
    readable
}

/// Makes the toolchains of one home folder be found in another, as far as nothing is there.
#[cfg(target_os = "linux")]
pub(super) fn link(home: &Path, other: &Path) {
    for (path, _) in toolchains(home) {
        let Ok(name) = path.strip_prefix(home) else { continue };
        let link = other.join(name);
        if let Some(above) = link.parent() {
            // Where it fails a toolchain isn't found, which its command will say.
            let _ = std::fs::create_dir_all(above);
        }
        // An empty folder can be left of a trial to mount something there.
        let _ = std::fs::remove_dir(&link);
        let _ = std::os::unix::fs::symlink(&path, link);
    }
}

/// Whether an entry of `PATH` can be shown as it is: one that is the home folder, or holds it, would show all of it.
pub fn is_harmless_entry(entry: &Path, home: Option<&Path>) -> bool {
    entry.parent().is_some() && home.is_none_or(|home| !home.starts_with(entry))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_can_hold_a_secret_is_left_out_even_where_folders_are_all_or_nothing() {
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
        assert_eq!(names(readable(home.path())), [".cargo", ".rustup"]);
        fs::write(home.path().join(".cargo/credentials.toml"), "token").unwrap();
        assert_eq!(names(readable(home.path())), [".cargo/bin", ".cargo/config.toml", ".rustup"]);
        let left_out: Vec<_> = toolchains(home.path()).flat_map(|(_, without)| without).collect();
        assert_eq!(names(left_out), [".cargo/credentials.toml"]);
    }

    #[test]
    fn the_readme_lists_the_toolchains() {
        let readme = include_str!("../../README.md");
        let (_, rest) = readme.split_once("<!-- The table in src/sandbox/home.rs. -->").unwrap();
        let (list, rest) = rest.trim_start().split_once("\n\n").unwrap();
        let listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, TOOLCHAINS.iter().map(|toolchain| toolchain.path).collect::<Vec<_>>());
        for secret in TOOLCHAINS.iter().flat_map(|toolchain| toolchain.without) {
            assert!(rest.contains(&format!("`{secret}`")), "{secret}");
        }
    }

    #[test]
    fn a_path_entry_that_holds_the_home_folder_is_none() {
        let home = Some(Path::new("/home/someone"));
        for (entry, harmless) in [("/home/someone/bin", true), ("/home/someone", false), ("/home", false), ("/", false)]
        {
            assert_eq!(is_harmless_entry(Path::new(entry), home), harmless, "{entry}");
        }
    }
}

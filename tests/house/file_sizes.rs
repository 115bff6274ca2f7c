//! Sizes of the source files, paths and dependencies.

use super::source::{files, read, root, sources};

#[test]
fn long_and_short_files_are_printed() {
    let mut sizes: Vec<(usize, String)> = sources()
        .iter()
        .map(|file| (file.code.trim_end().lines().count(), file.path.to_string_lossy().into_owned()))
        .collect();
    assert!(!sizes.is_empty(), "no source file was found");
    sizes.sort_by(|a, b| b.cmp(a));
    for (lines, path) in sizes.iter().take(10) {
        println!("{lines:5} {path}");
    }
    println!("{} files below 40 lines", sizes.iter().filter(|(lines, _)| *lines < 40).count());
}

#[test]
fn nothing_names_the_machine_that_it_was_made_on() {
    let here = root().to_string_lossy().into_owned();
    let folders = ["src", "tests", "benches", "jobs", "schemas", ".github", ".ci"];
    let top = std::fs::read_dir(root()).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    for path in folders.into_iter().flat_map(files).chain(top) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        assert!(!text.contains(&here), "{} names this machine's folder", path.display());
    }
}

#[test]
fn every_dependency_comes_from_one_registry() {
    let lock = read("Cargo.lock");
    let mut sources: Vec<&str> = lock.lines().filter(|line| line.starts_with("source = ")).collect();
    sources.sort_unstable();
    sources.dedup();
    assert!(matches!(sources.as_slice(), [one] if one.starts_with("source = \"registry+")), "{sources:?}");
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = read("Cargo.toml");
    let (mut in_dependencies, mut reason) = (false, false);
    let mut count = 0;
    for line in manifest.lines() {
        match line.trim() {
            head if head.starts_with('[') => (in_dependencies, reason) = (head.ends_with("dependencies]"), false),
            "" => reason = false,
            comment if comment.starts_with('#') => reason = true,
            dependency if in_dependencies && dependency.contains('=') => {
                count += 1;
                assert!(reason, "no comment says why: {dependency}");
            }
            _ => {}
        }
    }
    assert!(count > 20, "only {count} dependencies were seen");
}

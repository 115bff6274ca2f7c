//! The sizes of source files, and paths of this machine in them.

use super::source::{files, root, sources};

#[test]
fn file_sizes_are_printed() {
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
fn no_file_names_this_machine() {
    let here = root().to_string_lossy().into_owned();
    let folders = ["src", "tests", "benches", "jobs", "schemas", ".github", ".ci"];
    let top = std::fs::read_dir(root()).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    for path in folders.into_iter().flat_map(files).chain(top) {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        assert!(!text.contains(&here), "{} names this machine's folder", path.display());
    }
}

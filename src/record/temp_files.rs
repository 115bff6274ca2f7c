//! Files on their way to their names in a record. A kill leaves them behind; whoever has the folder's lock takes them away.

use std::path::Path;
use std::{fs, io};

use tempfile::NamedTempFile;

/// What their names begin with.
const TEMP_PREFIX: &str = ".tmp-legwork-";
/// The folders that they are in, relative to the record's.
const TEMP_DIRS: [&str; 2] = ["", "subagents"];

/// A file in a folder of the record that appears under its own name when it is whole, readable by its owner alone.
///
/// # Errors
/// It can't be made.
pub fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(folder)
}

/// Takes away what a killed process has left in a record. What can't be removed stays.
pub(super) fn clean(record: &Path) {
    for folder in TEMP_DIRS {
        for entry in fs::read_dir(record.join(folder)).into_iter().flatten().flatten() {
            let is_ours = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
            if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kill_left_is_taken_away_and_nothing_else() {
        let record = tempfile::tempdir().unwrap();
        fs::create_dir(record.path().join("subagents")).unwrap();
        for folder in TEMP_DIRS {
            let folder = record.path().join(folder);
            temporary(&folder).unwrap().keep().unwrap();
            fs::write(folder.join(".tmpAAAAAA"), "mine").unwrap();
        }
        clean(record.path());
        for folder in TEMP_DIRS {
            let names = fs::read_dir(record.path().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.filter(|name| *name != "subagents").collect();
            names.sort();
            assert_eq!(names, [".tmpAAAAAA"]);
        }
    }
}

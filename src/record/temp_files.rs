//! Temporary files in a record, which are renamed when they are complete. A killed process leaves them behind; the next process
//! with the folder's lock removes them.

use std::path::Path;
use std::{fs, io};

use tempfile::NamedTempFile;

/// The prefix of their names.
const TEMP_PREFIX: &str = ".tmp-legwork-";
/// The folders that they can be in, relative to the record.
const TEMP_DIRS: [&str; 2] = ["", "subagents"];

/// Creates a temporary file in a folder of the record that only its owner can read.
///
/// # Errors
/// If it can't be created.
pub fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(folder)
}

/// Removes the temporary files that a killed process has left in a record, as far as possible.
pub(super) fn remove_temporary_files(record: &Path) {
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
    fn only_temporary_files_are_removed() {
        let record = tempfile::tempdir().unwrap();
        fs::create_dir(record.path().join("subagents")).unwrap();
        for folder in TEMP_DIRS {
            let folder = record.path().join(folder);
            temporary(&folder).unwrap().keep().unwrap();
            fs::write(folder.join(".tmpAAAAAA"), "mine").unwrap();
        }
        remove_temporary_files(record.path());
        for folder in TEMP_DIRS {
            let names = fs::read_dir(record.path().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.filter(|name| *name != "subagents").collect();
            names.sort();
            assert_eq!(names, [".tmpAAAAAA"]);
        }
    }
}

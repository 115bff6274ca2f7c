//! The bytes of images and documents in a record: one file each, named after their digest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;

use super::files::read_file;
use super::read::Record;
use super::recorder::{ExistingFile, Recorder};
use crate::attachment::{Attachment, MAX_BYTES};
use crate::error::Error;
use crate::event::{Event, JournalEntry};

impl Recorder {
    /// Writes the bytes of an image or a document to the disk, unless they are there.
    ///
    /// # Errors
    /// If they couldn't be written.
    pub fn write_attachment(&self, attachment: &Attachment) -> io::Result<()> {
        let name = attachment.file_name().ok_or_else(invalid_digest)?;
        let (file, existing) = self.write_temporary(&name, |out| out.write_all(&attachment.data))?;
        if existing == ExistingFile::Identical {
            return Ok(());
        }
        file.file().sync_data()?;
        self.persist(file, &name)?;
        let folder = self.open_folder().open_dir(Path::new(&name).parent().unwrap_or(Path::new("")))?;
        File::from(folder).sync_all()
    }
}

/// Reads the bytes of an image or a document from a record.
///
/// # Errors
/// If they are missing, or have changed.
pub fn read_attachment(folder: &Path, attachment: &Attachment) -> io::Result<Bytes> {
    let name = attachment.file_name().ok_or_else(invalid_digest)?;
    let why = match read_file(folder, &name, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "is missing".to_owned(),
        Err(error) => format!("can't be read: {error}"),
        Ok(data) if attachment.has_bytes(&data) => return Ok(data.into()),
        Ok(_) => "was changed".to_owned(),
    };
    let message = format!("`{name}`, which a model was shown, {why}");
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

fn invalid_digest() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the digest of an image or a document isn't a SHA-256")
}

impl Record {
    /// Checks that all images and documents that the journals name are there.
    ///
    /// # Errors
    /// Names the first that is missing or has changed.
    pub fn check_attachments(&self, journals: &BTreeMap<String, Vec<JournalEntry>>) -> Result<(), Error> {
        let results = journals.values().flatten().filter_map(|entry| match &entry.event {
            Event::CallFinished(finished) => Some(&finished.result.attachments),
            _ => None,
        });
        let inputs = self.plan.attachments.iter().map(|input| &input.file);
        for attachment in inputs.chain(results.flatten()) {
            read_attachment(&self.folder, attachment).map_err(|error| Error::NotARecord {
                path: self.folder.clone(),
                why: format!("{error}; restore it, or start a new run"),
            })?;
        }
        Ok(())
    }
}

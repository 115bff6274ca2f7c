//! The images and PDFs of inputs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attachment::{Attachment, MAX_BYTES, MediaType, too_large};
use crate::message::ToolError;
use crate::text::bounded::read_up_to;
use crate::workspace::Workspace;

/// An image or a PDF that the parent gets with its first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputAttachment {
    /// The name of the input.
    pub input: String,
    /// Its path: from the workspace, or as `--set NAME=@FILE` gave it.
    pub path: String,
    /// The file.
    #[serde(flatten)]
    pub file: Attachment,
}

impl InputAttachment {
    /// What the model reads about it after its prompt.
    pub(super) fn note(&self) -> String {
        format!("[Attached for the input `{}`: `{}`, {}]", self.input, self.path.escape_debug(), self.file.describe())
    }
}

/// Where the path of an input leads from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Base<'a> {
    /// The workspace, which it must not leave.
    Workspace(&'a str),
    /// The current folder: the user has named the file.
    CurrentFolder,
}

/// Reads the file of an input.
///
/// # Errors
/// It can't be read or sent; the text follows the input's name.
pub(super) fn read(path: &str, base: Base<'_>) -> Result<Attachment, String> {
    let failed = |error: io::Error| format!("can't be read: {error}");
    let file = match base {
        Base::Workspace(root) => {
            let workspace = Workspace::open(Path::new(root), Vec::new(), Vec::new()).map_err(failed)?;
            workspace.open_file(path).map_err(|ToolError(why)| format!("can't be read: {why}"))?.file
        }
        Base::CurrentFolder => open_named(path).map_err(failed)?,
    };
    let length = file.metadata().map_err(failed)?.len();
    let data = read_up_to(file, MAX_BYTES).map_err(failed)?;
    let Some(kind) = MediaType::detect(&data) else {
        return Err("isn't a PNG, JPEG, GIF or WebP image or a PDF".to_owned());
    };
    if length > kind.max_bytes() {
        return Err(too_large(kind, length));
    }
    Attachment::new(kind, data)
}

/// Opens a file that the user has named. A FIFO or a device is an error.
fn open_named(path: &str) -> io::Result<File> {
    let not_a_file = || io::Error::new(io::ErrorKind::InvalidInput, "it isn't a regular file");
    // Check first, as opening a device can have side effects.
    if !fs::metadata(path)?.is_file() {
        return Err(not_a_file());
    }
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

//! The certificate that a server asks for, from PEM files. No message has their paths.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use reqwest::Identity;

use super::api::ProviderError;
use super::spec::{ConnectContext, SettingsContext};

/// The largest PEM file in bytes.
const MAX_PEM_BYTES: u64 = 1 << 20;

impl ConnectContext<'_> {
    /// The client certificate with its key. `name` is the name of the key in masks.
    ///
    /// # Errors
    /// A file can't be read, or isn't what it should be, or the address isn't https.
    pub(super) fn client_identity(&self, name: &str, scheme: &str) -> Result<Option<Identity>, ProviderError> {
        let Some(context) = self.settings else { return Ok(None) };
        let Some(files) = &context.settings.client_certificate else { return Ok(None) };
        let label = &context.settings.label;
        if scheme != "https" {
            let message = format!("`client_cert` of {label} needs an https:// address");
            return Err(ProviderError::rejected(message).with_hint("remove it, or use an https:// address"));
        }
        let mut pem = read_pem(context, "client_cert", &files.certificate)?;
        if let Some(key) = &files.key {
            pem.push('\n');
            pem.push_str(&read_pem(context, "client_key", key)?);
        }
        // Only its private part is a secret.
        if let Some((start, end)) = pem.find("PRIVATE KEY-----").zip(pem.rfind("-----END")) {
            self.redactor.add(&format!("{name}.client_key"), pem.get(start..end).unwrap_or_default());
        }
        if pem.contains("ENCRYPTED") {
            let message = format!("the client key of {label} has a password");
            return Err(ProviderError::rejected(message).with_hint("write it without one: `openssl pkey`"));
        }
        match Identity::from_pem(pem.as_bytes()) {
            Ok(identity) => Ok(Some(identity)),
            Err(_) => {
                let message = format!("the PEM files of `client_cert` of {label} don't have a certificate and its key");
                let hint = "they need `BEGIN CERTIFICATE` and `BEGIN PRIVATE KEY`, in one file or in `client_key`";
                Err(ProviderError::rejected(message).with_hint(hint))
            }
        }
    }
}

fn read_pem(context: SettingsContext<'_>, key: &str, path: &str) -> Result<String, ProviderError> {
    let label = &context.settings.label;
    let wrong = |what: &str| ProviderError::rejected(format!("the file in `{key}` of {label} {what}"));
    let path = match path.strip_prefix("~/") {
        Some(rest) => Path::new(context.variables.get("HOME").map_or("/", String::as_str)).join(rest),
        None => PathBuf::from(path),
    };
    let real = path.canonicalize().map_err(|error| wrong(&format!("can't be read: {error}")))?;
    if is_in(&real, context.workspace) || is_in(&path, context.workspace) {
        return Err(wrong("is in the workspace, where the tools of the job can read and change it")
            .with_hint("move it to a folder of your own"));
    }
    if !real.is_file() {
        return Err(wrong("isn't a regular file"));
    }
    let mut text = String::new();
    let read = File::open(&real).and_then(|file| file.take(MAX_PEM_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| wrong(&format!("can't be read: {error}")))?;
    if text.len() as u64 > MAX_PEM_BYTES {
        return Err(wrong(&format!("is larger than {MAX_PEM_BYTES} bytes")));
    }
    Ok(text)
}

/// Whether a file is in a folder, also if a link leads to the folder.
fn is_in(file: &Path, folder: &Path) -> bool {
    file.starts_with(folder) || folder.canonicalize().is_ok_and(|folder| file.starts_with(folder))
}

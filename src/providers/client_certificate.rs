//! The certificate that a server asks for, from PEM files. No message has their paths.

use std::fs::File;
use std::path::{Path, PathBuf};

use reqwest::Identity;

use super::api::ProviderError;
use super::spec::{ConnectContext, SettingsContext};
use crate::redaction::Redactor;
use crate::sandbox::programs::Folders;
use crate::text::bounded::read_at_most;

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
        self.redactor.add(&format!("{name}.client_key"), private_part(&pem));
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

/// The client certificate and its key in one PEM file. The key is masked as `name`.
///
/// # Errors
/// Why it can't be used, in words that follow "the file".
pub(crate) fn read_identity(
    path: &str,
    home: Option<&str>,
    changeable: &Folders,
    name: &str,
    redactor: &Redactor,
) -> Result<Identity, String> {
    let pem = read_pem_file(path, home, changeable)?;
    redactor.add(name, private_part(&pem));
    if pem.contains("ENCRYPTED") {
        return Err("has a key with a password: write it without one with `openssl pkey`".to_owned());
    }
    let incomplete = "doesn't have a certificate and its key: it needs `BEGIN CERTIFICATE` and `BEGIN PRIVATE KEY`";
    Identity::from_pem(pem.as_bytes()).map_err(|_| incomplete.to_owned())
}

/// The private part of PEM text, which alone is a secret.
fn private_part(pem: &str) -> &str {
    let part = pem.find("PRIVATE KEY-----").zip(pem.rfind("-----END")).and_then(|(start, end)| pem.get(start..end));
    part.unwrap_or_default()
}

fn read_pem(context: SettingsContext<'_>, key: &str, path: &str) -> Result<String, ProviderError> {
    let home = context.variables.get("HOME").map(String::as_str);
    read_pem_file(path, home, context.changeable)
        .map_err(|what| ProviderError::rejected(format!("the file in `{key}` of {} {what}", context.settings.label)))
}

/// Reads a PEM file.
///
/// # Errors
/// Why it can't be used, in words that follow "the file".
fn read_pem_file(path: &str, home: Option<&str>, changeable: &Folders) -> Result<String, String> {
    let path = match path.strip_prefix("~/") {
        Some(rest) => Path::new(home.unwrap_or("/")).join(rest),
        None => PathBuf::from(path),
    };
    let unreadable = |error: std::io::Error| format!("can't be read: {error}");
    let real = path.canonicalize().map_err(unreadable)?;
    if changeable.lead_through(&path) {
        let why =
            "is in the workspace, where the tools of the job can read and change it: move it to a folder of your own";
        return Err(why.to_owned());
    }
    if !real.is_file() {
        return Err("isn't a regular file".to_owned());
    }
    let read = File::open(&real).and_then(|file| read_at_most(file, MAX_PEM_BYTES)).map_err(unreadable)?;
    let bytes = read.ok_or_else(|| format!("is larger than {MAX_PEM_BYTES} bytes"))?;
    String::from_utf8(bytes).map_err(|_| "isn't UTF-8 text".to_owned())
}

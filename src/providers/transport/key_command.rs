//! Keys that a command of the user prints, and that are renewed when they expire.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::process::program::{ProgramCall, ProgramOutcome};
use crate::providers::api::{ProviderError, ProviderErrorKind};
use crate::providers::spec::SettingsContext;
use crate::providers::transport::retry::FailedAttempt;
use crate::providers::user_servers::KeyCommandSettings;
use crate::redaction::{MIN_SECRET_CHARS, Redactor};
use crate::sandbox::programs;

/// How long the command may take, unless `LEGWORK_KEY_COMMAND_TIMEOUT_MS` says otherwise (not for users: it makes tests fail
/// quickly).
pub(crate) const TIMEOUT_MS: u64 = 30_000;
/// The longest key in bytes.
const MAX_KEY_BYTES: usize = 16 << 10;

/// A command that prints a key. All conversations with a server share it, so that it runs once for each key.
pub(crate) struct KeyCommand {
    program: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    ttl: Option<Duration>,
    timeout: Duration,
    /// Where it is configured, for messages.
    pub(crate) source: String,
    /// The name of its key in masks.
    secret_name: String,
    redactor: Redactor,
    /// The current key. Locked while the command runs.
    current: Mutex<Option<IssuedKey>>,
}

/// A key that the command printed.
#[derive(Clone)]
pub(crate) struct IssuedKey {
    pub(crate) key: Arc<str>,
    /// Which key of the run it is, from 1.
    pub(crate) number: u64,
    at: Instant,
}

impl KeyCommand {
    /// Finds the program. It runs later.
    ///
    /// # Errors
    /// It doesn't exist, or the job's tools could replace it.
    pub(crate) fn new(
        context: SettingsContext<'_>,
        settings: &KeyCommandSettings,
        secret_name: &str,
        timeout: Duration,
        redactor: &Redactor,
    ) -> Result<Self, ProviderError> {
        let source = format!("`key_command` of {}", context.settings.label);
        let (name, arguments) = settings.argv.split_first().map_or(("", &[][..]), |(name, rest)| (name, rest));
        let program = find_program(name, context).ok_or_else(|| {
            let hint = "name a program in PATH, or write its absolute path";
            ProviderError::rejected(format!("the program of {source} can't be found")).with_hint(hint)
        })?;
        let changeable = context.changeable;
        if programs::can_be_changed(&program, changeable)
            || arguments.iter().any(|argument| changeable.are_named_in(argument))
        {
            let hint = "move it to a folder that no job can change";
            let message = format!("{source} is a file in the workspace, which the tools of the job could change");
            return Err(ProviderError::rejected(message).with_hint(hint));
        }
        Ok(Self {
            program,
            arguments: arguments.to_vec(),
            environment: context.variables.clone(),
            ttl: settings.ttl,
            timeout,
            source,
            secret_name: secret_name.to_owned(),
            redactor: redactor.clone(),
            current: Mutex::new(None),
        })
    }

    /// The parts of the command that identify it.
    pub(crate) fn identity(&self) -> impl Iterator<Item = &[u8]> {
        [self.program.as_os_str().as_encoded_bytes()].into_iter().chain(self.arguments.iter().map(String::as_bytes))
    }

    /// The key to send: the current one, or a new one if there is none or it is too old.
    ///
    /// # Errors
    /// The command fails. Once it has printed a key, a retry may help.
    pub(crate) async fn current(&self) -> Result<IssuedKey, FailedAttempt> {
        let is_valid = |issued: &IssuedKey| self.ttl.is_none_or(|ttl| issued.at.elapsed() < ttl);
        self.issue_unless(is_valid).await
    }

    /// Replaces a key that the server has refused, unless another conversation already has.
    ///
    /// # Errors
    /// See [`Self::current`].
    pub(crate) async fn renew(&self, refused: u64) -> Result<(), FailedAttempt> {
        self.issue_unless(|issued| issued.number > refused).await.map(drop)
    }

    async fn issue_unless(&self, is_valid: impl Fn(&IssuedKey) -> bool) -> Result<IssuedKey, FailedAttempt> {
        let mut current = self.current.lock().await;
        if let Some(issued) = current.as_ref().filter(|issued| is_valid(issued)) {
            return Ok(issued.clone());
        }
        let number = current.as_ref().map_or(0, |issued| issued.number) + 1;
        // From the start of the command: some programs return keys that they have kept for a while.
        let at = Instant::now();
        let key = self.run().await.map_err(|mut error| {
            if number == 1 {
                return FailedAttempt::permanent(error);
            }
            error.kind = ProviderErrorKind::Failed;
            FailedAttempt { error, ..FailedAttempt::transient("") }
        })?;
        let issued = IssuedKey { key: key.into(), number, at };
        *current = Some(issued.clone());
        Ok(issued)
    }

    /// Runs the command. No message contains what it prints.
    async fn run(&self) -> Result<String, ProviderError> {
        let call = ProgramCall {
            program: &self.program,
            arguments: &self.arguments,
            folder: Path::new("/"),
            input: &[],
            environment: &self.environment,
            timeout: self.timeout,
            max_bytes: MAX_KEY_BYTES,
        };
        let source = &self.source;
        let failed = |what: String| {
            let hint = "run the command in a shell to see what it prints: only the key, in one line of stdout; it gets no \
                        variables and no PATH that lead to files of the workspace";
            ProviderError::rejected(format!("{source} {what}")).with_hint(hint)
        };
        let output = match call.run().await {
            Err(error) => return Err(failed(format!("can't be started: {error}"))),
            Ok(ProgramOutcome::TimedOut) => return Err(failed(format!("didn't end within {:?}", self.timeout))),
            Ok(ProgramOutcome::TooMuchOutput) => {
                return Err(failed(format!("printed more than {MAX_KEY_BYTES} bytes")));
            }
            Ok(ProgramOutcome::Exited(status, _)) if !status.success() => {
                return Err(failed(match status.code() {
                    Some(code) => format!("failed with exit code {code}"),
                    None => "was killed by a signal".to_owned(),
                }));
            }
            Ok(ProgramOutcome::Exited(_, output)) => output,
        };
        let text = String::from_utf8_lossy(&output);
        let key = text.trim_end_matches(['\n', '\r']);
        // Even an invalid key may be one.
        if key.trim().len() >= MIN_SECRET_CHARS {
            self.redactor.add(&self.secret_name, key.trim());
        }
        match key {
            "" => Err(failed("printed nothing".to_owned())),
            _ if key.contains(['\n', '\r']) => Err(failed("printed more than one line".to_owned())),
            _ if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(failed("printed a space, a control character or a non-ASCII character".to_owned()))
            }
            // It couldn't be masked.
            _ if key.len() < MIN_SECRET_CHARS => {
                Err(failed(format!("printed fewer than {MIN_SECRET_CHARS} characters, which isn't a key")))
            }
            _ => Ok(key.to_owned()),
        }
    }
}

/// The absolute path of a program.
fn find_program(name: &str, context: SettingsContext<'_>) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.is_absolute() {
        return path.canonicalize().ok().filter(|file| file.is_file()).map(|_| path.to_owned());
    }
    let folders = std::env::split_paths(context.variables.get("PATH").map_or("", String::as_str));
    programs::find_outside(name, folders, context.changeable)
}

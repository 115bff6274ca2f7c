//! The messages of conversations on disk. In memory, a conversation is kept once: as the provider sends it. Compaction shortens
//! messages rather than requests, so it reads them back from here.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::message_history::MessageHistory;
use crate::message::Message;

/// An unnamed file for the messages of all agents of a run. The system removes it when the run ends in any way.
#[derive(Debug, Default)]
pub struct MessageFile {
    /// Where it is created when the first message is written; without a folder, messages stay in memory.
    folder: Option<PathBuf>,
    file: OnceLock<Option<File>>,
    end: AtomicU64,
}

impl MessageFile {
    /// A file in a folder, or no file.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Writes a message and returns its place; `None` if that isn't possible.
    fn write(&self, message: &Message) -> Option<(u64, usize)> {
        let create = || self.folder.as_deref().and_then(|folder| tempfile::tempfile_in(folder).ok());
        let file = self.file.get_or_init(create).as_ref()?;
        let json = serde_json::to_vec(message).ok()?;
        let at = self.end.fetch_add(json.len() as u64, Ordering::Relaxed);
        file.write_all_at(&json, at).ok()?;
        Some((at, json.len()))
    }

    fn read(&self, (at, length): (u64, usize)) -> io::Result<Message> {
        let file = self.file.get().and_then(Option::as_ref).ok_or(io::ErrorKind::NotFound)?;
        let mut json = vec![0; length];
        file.read_exact_at(&mut json, at)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

/// A message of a conversation.
#[derive(Debug)]
pub(super) enum StoredMessage {
    OnDisk(u64, usize),
    /// A message that couldn't be written.
    InMemory(Message),
}

/// The messages of one conversation, oldest first.
#[derive(Debug, Default)]
pub(super) struct MessageStore {
    /// The text of the first message.
    pub(super) prompt: String,
    /// Whether the model accepts its thinking only after the exact messages that it followed.
    pub(super) binds_thinking: bool,
    /// Whether no message is kept, because the job switches compaction off.
    pub(super) is_off: bool,
    pub(super) messages: Vec<StoredMessage>,
}

impl MessageStore {
    pub(super) fn push(&mut self, file: &MessageFile, message: Message) {
        if !self.is_off {
            let place = file.write(&message);
            self.messages
                .push(place.map_or(StoredMessage::InMemory(message), |(at, length)| StoredMessage::OnDisk(at, length)));
        }
    }

    /// Reads all messages.
    ///
    /// # Errors
    /// If the file can't be read.
    pub(super) fn load(&self, file: &MessageFile) -> io::Result<MessageHistory> {
        let read = |stored: &StoredMessage| match stored {
            StoredMessage::OnDisk(at, length) => file.read((*at, *length)),
            StoredMessage::InMemory(message) => Ok(message.clone()),
        };
        let messages = self.messages.iter().map(read).collect::<io::Result<Vec<_>>>()?;
        Ok(MessageHistory { prompt: self.prompt.clone(), messages, binds_thinking: self.binds_thinking })
    }

    /// Replaces all messages.
    pub(super) fn replace(&mut self, file: &MessageFile, history: MessageHistory) {
        self.messages.clear();
        history.messages.into_iter().for_each(|message| self.push(file, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::UserMessage;

    #[test]
    fn messages_are_read_back_from_disk_and_from_memory() {
        let folder = tempfile::tempdir().unwrap();
        let text = |number: usize| Message::User(UserMessage::text(format!("message {number} \u{1f600}\n\"")));
        for folder in [Some(folder.path().to_owned()), Some(folder.path().join("missing")), None] {
            let file = MessageFile::new(folder.clone());
            let mut stores = [MessageStore::default(), MessageStore::default()];
            for number in 0..10 {
                stores[number % 2].push(&file, text(number));
            }
            let read = |store: &MessageStore| -> Vec<String> {
                store.load(&file).unwrap().messages.iter().map(|message| format!("{message:?}")).collect()
            };
            let expected: Vec<String> = (0..5).map(|number| format!("{:?}", text(2 * number + 1))).collect();
            assert_eq!(read(&stores[1]), expected);
            let mut history = stores[1].load(&file).unwrap();
            history.messages.truncate(2);
            stores[1].replace(&file, history);
            assert_eq!(read(&stores[1]), expected[..2]);
            let is_on_disk = matches!(stores[0].messages[0], StoredMessage::OnDisk(..));
            assert_eq!(is_on_disk, folder.is_some_and(|folder| folder.exists()));
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file has no name");
    }
}

//! The messages of conversations on disk. In memory, a conversation is kept once: as the provider sends it. Compaction shortens
//! messages rather than requests, so it reads them back from here.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use tempfile::SpooledTempFile;

use super::message_history::MessageHistory;
use crate::attachment::Attachment;
use crate::message::Message;
use crate::providers::Model;
use crate::record::read_attachment;
use crate::sync::IgnorePoison;

/// How many bytes of messages stay in memory: a short run needs no file, and a map has many short runs.
const MAX_BYTES_IN_MEMORY: usize = 64 << 10;

/// An unnamed file for the messages of all agents of a run, once there are many. The system removes it when the run ends in
/// any way.
#[derive(Debug, Default)]
pub struct MessageFile {
    /// The record, where it is created; without a folder, messages aren't encoded and stay in memory.
    folder: Option<PathBuf>,
    file: Mutex<Option<SpooledTempFile>>,
}

impl MessageFile {
    /// A file in a folder, or no file.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Writes a message and returns its place; `None` if that isn't possible.
    fn write(&self, message: &Message) -> Option<(u64, usize)> {
        let folder = self.folder.as_deref()?;
        let json = serde_json::to_vec(message).ok()?;
        let mut file = self.lock();
        let file = file.get_or_insert_with(|| tempfile::spooled_tempfile_in(MAX_BYTES_IN_MEMORY, folder));
        let at = file.seek(SeekFrom::End(0)).ok()?;
        file.write_all(&json).ok()?;
        Some((at, json.len()))
    }

    fn read(&self, (at, length): (u64, usize)) -> io::Result<Message> {
        let mut locked = self.lock();
        let file = locked.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let mut json = vec![0; length];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut json)?;
        drop(locked);
        let mut message = serde_json::from_slice(&json)?;
        if let Message::User(message) = &mut message {
            message.attachments_mut().try_for_each(|attachment| self.load(attachment))?;
        }
        Ok(message)
    }

    /// Reads the bytes of an image or a document from the record, unless they are there. A replay has no folder and no need
    /// for them.
    ///
    /// # Errors
    /// If the record doesn't have them any more.
    pub(super) fn load(&self, attachment: &mut Attachment) -> io::Result<()> {
        if let Some(record) = self.folder.as_deref().filter(|_| attachment.data.is_empty()) {
            attachment.data = read_attachment(record, attachment)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<SpooledTempFile>> {
        self.file.lock().ignore_poison()
    }
}

/// A message of a conversation.
#[derive(Debug)]
pub(super) enum StoredMessage {
    InFile(u64, usize),
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
    /// The model, which determines the size of images.
    pub(super) model: Model,
    /// Whether no message is kept, because the job switches compaction off.
    pub(super) is_off: bool,
    pub(super) messages: Vec<StoredMessage>,
}

impl MessageStore {
    pub(super) fn push(&mut self, file: &MessageFile, message: Message) {
        if !self.is_off {
            let place = file.write(&message);
            self.messages
                .push(place.map_or(StoredMessage::InMemory(message), |(at, length)| StoredMessage::InFile(at, length)));
        }
    }

    /// Reads all messages.
    ///
    /// # Errors
    /// If the file can't be read.
    pub(super) fn load(&self, file: &MessageFile) -> io::Result<MessageHistory> {
        let read = |stored: &StoredMessage| match stored {
            StoredMessage::InFile(at, length) => file.read((*at, *length)),
            StoredMessage::InMemory(message) => Ok(message.clone()),
        };
        let messages = self.messages.iter().map(read).collect::<io::Result<Vec<_>>>()?;
        Ok(MessageHistory {
            prompt: self.prompt.clone(),
            messages,
            binds_thinking: self.binds_thinking,
            model: self.model.clone(),
        })
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
        let text = |number: usize| {
            Message::User(UserMessage::text(format!("message {number} \u{1f600}\n\"{}", "x".repeat(10_000))))
        };
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
            let is_in_file = |stored: &StoredMessage| matches!(stored, StoredMessage::InFile(..));
            let has_file = folder.as_ref().is_some_and(|folder| folder.exists());
            assert_eq!(is_in_file(&stores[0].messages[0]), folder.is_some());
            assert_eq!(is_in_file(&stores[0].messages[4]), has_file, "the first messages fill the memory");
            assert_eq!(file.lock().as_ref().is_some_and(SpooledTempFile::is_rolled), has_file);
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file has no name");
    }
}

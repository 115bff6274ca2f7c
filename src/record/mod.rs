//! The record of a run: a folder with its journals and everything that is derived from them. This folder locks it, writes
//! it while a run lasts, and finds, reads, resumes and rebuilds it.

mod artifacts;
mod attachments;
mod files;
mod flush;
mod follow;
mod keyed;
mod heartbeat;
mod journal_files;
mod journal_set;
mod lease;
mod lock;
mod lookup;
mod overview;
mod proposed_outputs;
mod read;
mod rebuild;
mod recorder;
mod resume;
mod run_row;
mod run_slot;
mod state;

pub use self::artifacts::{WriteReports, WrittenFile};
pub use self::attachments::read_attachment;
pub use self::files::{
    BASELINE_FILE, FILES_FOLDER, LATEST, PATCH_FILE, REPORT_FILE, RESULT_FILE, ROWS, RUNS, TRANSCRIPT_FILE,
    create_shared_file,
};
pub(crate) use self::files::{
    is_of_file_system, is_without_locks, open_file, open_file_in, open_for_appending, read_file,
    remove_abandoned_files, replace_private_file, replace_shared_file, retry_stale, temporary_in,
};
pub use self::flush::{FlushQueue, flush_together};
pub use self::follow::{JournalTail, RunWatch};
pub use self::heartbeat::{BEAT, Heartbeat, MISSED_BEATS, ObservedPeer};
pub use self::keyed::{MAP_FILE, OpenedRecord, PreviousAttempt, RecordOpenOptions, StartedRecord, is_record_file};
pub use self::lease::ObservedLease;
pub use self::lock::{FolderLease, RemovalLock, has_lease, remove_left_lease};
pub use self::lookup::{find_run, folders, is_timestamp};
pub use self::overview::{Overview, read_overview};
pub use self::proposed_outputs::{empty_outputs_file, outputs_file};
pub use self::read::{Record, read_conversation};
pub use self::rebuild::Rebuilt;
pub use self::recorder::{ExistingFile, Recorder, create_job_dir, new_run_id, point_latest_to, remove_unused_files};
pub use self::resume::ResumedRecord;
pub use self::run_row::{RowKind, RunRow, RunStatus};
pub use self::run_slot::{RunSlot, RunSlots};
pub use self::state::{
    Damage, Depth, FileDefect, LOST_START, Mismatch, NOT_STARTED, RecordQuery, RecordReading, RecordState,
    ResultSource, RunStart, is_previous_attempt, read_versioned,
};

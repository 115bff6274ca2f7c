//! The record of a run: a folder with its journals and everything that is derived from them.

mod artifacts;
mod authenticity;
mod disk_reserve;
mod heartbeat;
mod layout;
mod lock;
mod lookup;
mod read;
mod rebuild;
mod recorder;
mod resume;
mod temp_files;

pub use self::layout::{BASELINE_FILE, LATEST, RUNS};
pub use self::lookup::find_run;
pub use self::read::Record;
pub use self::rebuild::Rebuilt;
pub use self::recorder::{ExistingFile, Recorder, new_run_id};
pub use self::resume::ResumedRecord;
pub use self::temp_files::temporary;
pub(crate) use crate::journal::record_files::open as open_file;

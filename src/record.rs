//! The run folder: its names, writing it while a run goes on, reading it afterwards.

mod find;
mod journal;
mod lock;
mod reopen;
mod reserve;
mod trial;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::Timestamp;

pub use self::find::find_run;
use self::journal::Journal;
pub use self::journal::{Entries, Flaw};
use self::lock::Lock;
pub use self::reopen::Reopened;
use self::reserve::Reserve;
use self::trial::Trial;
use crate::error::Error;
use crate::event::{Durability, Entry, Event, PARENT, RunResult};
use crate::formats::{self, Story};
use crate::plan::Plan;

/// The folder that runs go to when nobody says otherwise.
pub const RUNS: &str = "runs";

/// What people read, and the format that writes it: made from the journal, so it can be made again.
const DERIVED: [(&str, &str); 2] = [("transcript.md", "markdown"), ("report.html", "html")];

/// A subagent's summary, relative to the run's folder.
pub fn summary_file(id: &str) -> String {
    format!("subagents/{id}.md")
}

fn journal_file(agent: &str) -> String {
    if agent == PARENT { "events.jsonl".to_owned() } else { format!("subagents/{agent}.events.jsonl") }
}

/// Writes a run's folder. All files are readable by their owner alone.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    run_id: String,
    journals: Mutex<HashMap<String, Journal>>,
    reserve: Reserve,
    /// Held as long as the run goes on.
    lock: Lock,
    /// The journals that an earlier part of the run wrote: how many lines each has, and the last one's checksum.
    earlier: HashMap<String, (u64, String)>,
    /// What is to go wrong, for tests.
    pub trial: Trial,
}

impl Recorder {
    /// Makes the folder `out/<job>/<run id>` and points `out/<job>/latest` at it. A folder `out` that wasn't there
    /// gets a `.gitignore` for everything.
    ///
    /// # Errors
    /// Where the folder can't be made.
    pub fn create(out: &Path, job: &str, started: Timestamp) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Record { path, source }
        };
        let is_new = !out.exists();
        let of_job = out.join(job);
        let latest = of_job.join("latest");
        let in_the_way = |why: &str| io::Error::new(io::ErrorKind::AlreadyExists, why);
        if is_new && out.is_symlink() {
            return Err(failed(out)(in_the_way("it is a link to nothing")));
        }
        // A rename would silently replace a file, and a folder would spoil the run once it is begun.
        if fs::symlink_metadata(&latest).is_ok_and(|found| !found.is_symlink()) {
            return Err(failed(&latest)(in_the_way("there is something that is no link, where one is made to the newest run")));
        }
        folders().create(&of_job).map_err(failed(&of_job))?;
        let ignore = out.join(".gitignore");
        if is_new || (out.file_name() == Some(RUNS.as_ref()) && !ignore.exists()) {
            fs::write(&ignore, "*\n").map_err(failed(&ignore))?;
        }
        let (run_id, folder) = loop {
            let run_id = new_run_id(started);
            let folder = of_job.join(&run_id);
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => break (run_id, folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&folder)(error)),
            }
        };
        let reserve = Reserve::hold(&folder);
        let lock = Lock::take(&folder)?;
        let recorder = Self {
            folder,
            run_id,
            journals: Mutex::default(),
            reserve,
            lock,
            earlier: HashMap::new(),
            trial: Trial::default(),
        };
        let fresh = of_job.join(format!(".latest-{}", recorder.run_id));
        std::os::unix::fs::symlink(&recorder.run_id, &fresh)
            .and_then(|()| fs::rename(&fresh, &latest))
            .map_err(|error| {
                // Nothing has begun, so nothing stays.
                let _ = fs::remove_file(&fresh);
                let _ = fs::remove_dir(&recorder.folder);
                failed(&latest)(error)
            })?;
        Ok(recorder)
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The run's id: the folder's name.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Appends an event to its agent's journal and returns it as it was written.
    ///
    /// # Errors
    /// Where it couldn't be written whole; a half line is cut off when the journal is read.
    pub fn append(&self, agent: &str, event: Event, durability: Durability, at: Timestamp) -> io::Result<Entry> {
        self.lock.is_at(&self.folder)?;
        let mut journals = self.journals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let journal = match journals.get_mut(agent) {
            Some(journal) => journal,
            None => {
                let path = self.folder.join(journal_file(agent));
                self.trial.operation()?;
                self.make_folder_of(&path)?;
                let journal = match self.earlier.get(agent) {
                    Some((lines, sum)) => Journal::resume(private().append(true).open(path)?, *lines, sum.clone()),
                    None => Journal::new(private().append(true).create_new(true).open(path)?),
                };
                journals.entry(agent.to_owned()).or_insert(journal)
            }
        };
        let entry = Entry { seq: journal.next(), at, agent: agent.to_owned(), event };
        journal.append(&entry, durability, &self.trial)?;
        self.trial.event();
        let ended = matches!(&entry.event, Event::AgentFinished(finished) if finished.id == agent && agent != PARENT);
        if ended {
            // Hundreds of subagents would otherwise hold hundreds of descriptors.
            journals.remove(agent);
        }
        Ok(entry)
    }

    /// Writes a file of the folder so that it appears whole or not at all.
    ///
    /// # Errors
    /// Where it couldn't be written.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.write_with(name, |out| out.write_all(content))
    }

    /// Makes the folder below the run's own that a file goes to. The run's own is never made again: where it was
    /// deleted, half a record must not come up in its place.
    fn make_folder_of<'a>(&'a self, path: &'a Path) -> io::Result<&'a Path> {
        let folder = path.parent().unwrap_or(&self.folder);
        if folder != self.folder {
            match fs::DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(folder)
    }

    fn write_with(&self, name: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.lock.is_at(&self.folder)?;
        let path = self.folder.join(name);
        self.trial.operation()?;
        let folder = self.make_folder_of(&path)?;
        // tempfile makes its files 0600.
        let mut file = io::BufWriter::with_capacity(64 * 1024, tempfile::NamedTempFile::new_in(folder)?);
        write(&mut file)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.trial.operation()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Writes what is derived from the journal, and `result.json` last of all; drops the subagents' journals that
    /// aren't to be kept.
    ///
    /// # Errors
    /// Where a file couldn't be written; the journal is whole all the same.
    pub fn finish(&self, plan: &Plan, result: &RunResult, keep_journals: bool) -> io::Result<()> {
        self.journals.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        self.reserve.release();
        self.derive(plan, result)?;
        if !keep_journals {
            for subagent in &result.subagents {
                match fs::remove_file(self.folder.join(journal_file(&subagent.id))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        self.write("result.json", &json(result)?)
    }

    /// Writes `result.json` and nothing else. Where there is no room for it, what is derived from the journal makes way.
    ///
    /// # Errors
    /// Where it couldn't be written.
    pub fn write_result(&self, result: &RunResult) -> io::Result<()> {
        let json = json(result)?;
        self.reserve.release();
        self.write("result.json", &json).or_else(|_| {
            for (name, _) in DERIVED {
                let _ = fs::remove_file(self.folder.join(name));
            }
            self.write("result.json", &json)
        })
    }

    /// Writes what people read.
    fn derive(&self, plan: &Plan, result: &RunResult) -> io::Result<()> {
        for (name, format) in DERIVED {
            let Some(format) = formats::find(format) else { continue };
            let journal = Entries::open(&self.folder.join(journal_file(PARENT)))?;
            let mut entries = journal.filter_map(Result::ok);
            let mut story = Story { plan, result: Some(result), entries: &mut entries };
            self.write_with(name, |out| format.story(&mut story, out).unwrap_or(Ok(())))?;
        }
        Ok(())
    }
}

/// A run folder that is read.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    /// What was planned.
    pub plan: Plan,
    /// How it ended; `None` where it didn't.
    pub result: Option<RunResult>,
}

impl Record {
    /// Opens a run's folder.
    ///
    /// # Errors
    /// Where it holds no plan, or its files aren't what this version writes.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let read = |name: &str| {
            let path = folder.join(name);
            match fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(Error::Record { path, source }),
            }
        };
        let damaged = |name: &str, error: serde_json::Error| Error::NotARecord {
            path: folder.join(name),
            why: format!("it can't be read: {error}"),
        };
        let plan = read("plan.json")?
            .ok_or_else(|| Error::NotARecord { path: folder.to_owned(), why: "it has no plan.json".to_owned() })?;
        let plan: Plan = serde_json::from_slice(&plan).map_err(|error| damaged("plan.json", error))?;
        let result = read("result.json")?
            .map(|bytes| serde_json::from_slice::<RunResult>(&bytes))
            .transpose()
            .map_err(|error| damaged("result.json", error))?;
        for (name, format) in [("plan.json", Some(plan.format)), ("result.json", result.as_ref().map(|it| it.format))] {
            if let Some(format) = format
                && format != crate::event::FORMAT
            {
                let why = format!("its format is {format}, and this legwork reads format {}", crate::event::FORMAT);
                return Err(Error::NotARecord { path: folder.join(name), why });
            }
        }
        Ok(Self { folder: folder.to_owned(), plan, result })
    }

    /// An agent's events, oldest first, from a journal that is verified while it is read.
    ///
    /// # Errors
    /// Where the agent has no journal, or it can't be opened.
    pub fn entries(&self, agent: &str) -> Result<Entries<BufReader<fs::File>>, Error> {
        let path = self.folder.join(journal_file(agent));
        Entries::open(&path).map_err(|source| Error::Record { path, source })
    }

    /// The ids of the subagents whose journals are there.
    ///
    /// # Errors
    /// Where the folder can't be read.
    pub fn subagents(&self) -> Result<Vec<String>, Error> {
        let path = self.folder.join("subagents");
        let listing = match fs::read_dir(&path) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::Record { path, source }),
        };
        let mut ids: Vec<String> = listing
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".events.jsonl").map(str::to_owned))
            .collect();
        ids.sort();
        Ok(ids)
    }
}

fn json(result: &RunResult) -> io::Result<Vec<u8>> {
    let mut json = serde_json::to_vec_pretty(result)?;
    json.push(b'\n');
    Ok(json)
}

fn folders() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Sortable and easy to type: the time in UTC and six random digits of base 32.
fn new_run_id(now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    // Every RandomState has fresh keys, so an empty hash is a random number.
    let mut random = RandomState::new().build_hasher().finish();
    let mut id = format!("{}-", now.strftime("%Y%m%d-%H%M%S"));
    for _ in 0..6 {
        id.push(char::from(DIGITS[(random % 32) as usize]));
        random /= 32;
    }
    id
}

//! Flushes files to the disk. Runs of one process that wait for that at the same time share a flush: a disk completes far fewer
//! flushes in a second than a map has rows that write.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::files::open_folder;
use crate::sync::IgnorePoison;

/// How long the flush at the end of a run waits for others, which it is shared with. Meanwhile another row has its place.
const MAX_WAIT: Duration = Duration::from_millis(10);
/// How many threads flush files one by one.
const MAX_THREADS: usize = 8;

/// What must be on the disk before the next step of a run.
#[derive(Debug, Default)]
pub(super) struct FlushRequest {
    pub(super) files: Vec<Arc<File>>,
    /// The folders in which files or folders were created.
    pub(super) folders: Vec<PathBuf>,
    /// How many lines of the journal are on the disk then, if it has one.
    pub(super) journal_lines: Option<u64>,
    /// Whether it can wait a little for other requests: nothing but the end of the run waits for it.
    pub(super) can_wait: bool,
}

impl FlushRequest {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty()
    }

    /// Flushes the files, and the folders that aren't in `flushed` yet.
    pub(super) fn flush(&self, flushed: &mut HashSet<PathBuf>) -> io::Result<()> {
        self.files.iter().try_for_each(|file| file.sync_data())?;
        for folder in &self.folders {
            if flushed.contains(folder) {
                continue;
            }
            match open_folder(folder).and_then(|folder| folder.sync_all()) {
                // Some file systems can't flush folders, and the user may not be allowed to read all of them.
                Err(error)
                    if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) =>
                {
                    return Err(error);
                }
                _ => drop(flushed.insert(folder.clone())),
            }
        }
        Ok(())
    }
}

/// A request, and where its result goes.
type Waiting = (FlushRequest, oneshot::Sender<io::Result<()>>);

/// Flushes the files of many runs on a thread, as many at once as wait. Clones share the thread, which ends with the last one.
#[derive(Debug, Clone)]
pub struct FlushQueue(Sender<Waiting>);

impl FlushQueue {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("flush".to_owned()).spawn(move || flush_all(&receiver))?;
        Ok(Self(sender))
    }

    pub(super) async fn flush(&self, request: FlushRequest) -> io::Result<()> {
        let (sender, result) = oneshot::channel();
        let gone = || io::Error::other("the thread that flushes files has ended");
        self.0.send((request, sender)).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }
}

/// Flushes files that were written one after the other.
///
/// # Errors
/// If one may not be on the disk.
pub fn flush_together<'a>(files: impl Iterator<Item = &'a File>) -> io::Result<()> {
    let files: Vec<&File> = files.collect();
    if files.len() > 1 && flush_file_system(files.iter().copied()) {
        return Ok(());
    }
    flush_on_threads(files.into_iter(), || |file: &File| file.sync_data())
}

/// Flushes on a few threads: disks and servers work on several flushes at once. Returns the first failure.
/// `flush` is called once for each thread.
fn flush_on_threads<T: Send, F: FnMut(T) -> io::Result<()>>(
    items: impl ExactSizeIterator<Item = T> + Send,
    flush: impl Fn() -> F + Sync,
) -> io::Result<()> {
    let threads = items.len().min(MAX_THREADS);
    let (items, result) = (Mutex::new(items), Mutex::new(Ok(())));
    let work = || {
        let mut flush = flush();
        let next = || items.lock().ignore_poison().next();
        while let Some(item) = next() {
            if let Err(error) = flush(item) {
                let mut result = result.lock().ignore_poison();
                *result = std::mem::replace(&mut *result, Ok(())).and(Err(error));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without more threads, this one does all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    result.into_inner().ignore_poison()
}

/// How long flushes took.
struct FlushTimes {
    /// That of one request's files.
    one: Duration,
    /// That of the file system. The longer it isn't tried, the less it counts.
    file_system: Duration,
}

fn flush_all(receiver: &Receiver<Waiting>) {
    let mut times = FlushTimes { one: Duration::from_millis(1), file_system: Duration::ZERO };
    while let Ok(first) = receiver.recv() {
        let mut batch: Vec<Waiting> = std::iter::once(first).chain(receiver.try_iter()).collect();
        let end = Instant::now() + MAX_WAIT;
        while batch.iter().all(|(request, _)| request.can_wait)
            && let Ok(next) = receiver.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            batch.push(next);
        }
        let count = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let start = Instant::now();
        // Other programs may have written gigabytes. Then it takes less time to flush file by file.
        let is_together = count > 1
            && times.one.saturating_mul(count) > times.file_system
            && flush_file_system(batch.iter().flat_map(|(request, _)| &request.files).map(|file| &**file));
        if is_together {
            times.file_system = start.elapsed();
            // Whoever doesn't wait any more needs no result.
            batch.into_iter().for_each(|(_, result)| drop(result.send(Ok(()))));
            continue;
        }
        flush_each(batch);
        times.one = start.elapsed() / count;
        times.file_system = times.file_system * 7 / 8;
    }
}

/// Flushes file by file.
fn flush_each(batch: Vec<Waiting>) {
    let _ = flush_on_threads(batch.into_iter(), || {
        let mut flushed = HashSet::new();
        move |(request, result): Waiting| {
            let _ = result.send(request.flush(&mut flushed));
            Ok(())
        }
    });
}

/// Flushes everything on the file system of these files. Returns false if that may not have worked.
#[cfg(target_os = "linux")]
fn flush_file_system<'a>(files: impl Iterator<Item = &'a File>) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use crate::workspace::open_beneath::is_local_filesystem;

    let device = |file: &File| file.metadata().ok().map(|found| found.dev());
    let mut files = files.peekable();
    let Some(first) = files.peek().copied() else { return false };
    let expected = device(first);
    // Others may do nothing.
    expected.is_some()
        && is_local_filesystem(first.as_fd())
        && reports_errors()
        && files.all(|file| device(file) == expected)
        && rustix::fs::syncfs(first).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn flush_file_system<'a>(_: impl Iterator<Item = &'a File>) -> bool {
    false
}

/// Whether syncfs(2) reports errors: since Linux 5.8.
#[cfg(target_os = "linux")]
fn reports_errors() -> bool {
    let system = rustix::system::uname();
    let mut numbers =
        system.release().to_str().unwrap_or_default().split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(5_u32), Some(8_u32))
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    #[test]
    fn every_request_gets_its_own_result() {
        let folder = tempfile::tempdir().unwrap();
        let queue = FlushQueue::start().unwrap();
        let request = |name: &str| FlushRequest {
            files: vec![Arc::new(tempfile::tempfile_in(folder.path()).unwrap())],
            folders: vec![folder.path().join(name)],
            journal_lines: None,
            can_wait: name.is_empty(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let flushed = join_all((0..50).map(|_| queue.flush(request("")))).await;
            assert!(flushed.iter().all(Result::is_ok), "{flushed:?}");
            let missing = queue.clone().flush(request("missing")).await;
            assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        });
        let batch = ["", "missing"].map(|name| {
            let (sender, result) = oneshot::channel();
            ((request(name), sender), result)
        });
        let (batch, mut results): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        flush_each(batch);
        let kinds = results.iter_mut().map(|result| result.try_recv().unwrap().map_err(|error| error.kind()));
        assert_eq!(kinds.collect::<Vec<_>>(), [Ok(()), Err(io::ErrorKind::NotFound)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_file_system_of_all_files_is_flushed_at_once() {
        use std::os::fd::AsFd;

        use crate::workspace::open_beneath::is_local_filesystem;

        let local = Arc::new(tempfile::tempfile().unwrap());
        assert_eq!(
            flush_file_system([&*local, &local].into_iter()),
            is_local_filesystem(local.as_fd()) && reports_errors()
        );
        let other = Arc::new(File::open("/proc/self/status").unwrap());
        assert!(!flush_file_system([&*local, &other].into_iter()) && !flush_file_system([&*other].into_iter()));
    }
}

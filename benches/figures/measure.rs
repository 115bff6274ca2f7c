//! Measures wall time, CPU time and memory of one process.
//!
//! The peak memory of a process includes what it used before `exec`. A direct child of this program would look too big,
//! because this program holds the server's buffers. A small process in between starts and measures the child.

use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

/// The measurements of one process.
pub(crate) struct Measurement {
    /// When it was started, in milliseconds since 1970.
    pub(crate) started: f64,
    /// Wall-clock time in milliseconds.
    pub(crate) wall: f64,
    /// Milliseconds of CPU time, user and system, including its children.
    pub(crate) cpu: f64,
    /// Peak resident memory in bytes.
    pub(crate) memory: u64,
}

/// A time in milliseconds since 1970.
pub(crate) fn epoch_ms(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// Runs a program and prints its measurements. This runs in the process in between.
#[allow(clippy::zombie_processes, reason = "`wait4` reaps it")]
#[allow(clippy::cast_lossless, reason = "the types of times differ between systems")]
pub(crate) fn child(program: &str, arguments: &[&str]) {
    let (started, start) = (epoch_ms(SystemTime::now()), Instant::now());
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let child = child.expect("the program starts");
    let (status, used) = wait(&child);
    let wall = start.elapsed().as_secs_f64() * 1e3;
    let millis = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    let cpu = millis(used.ru_utime) + millis(used.ru_stime);
    // Linux counts in KiB, macOS in bytes.
    let memory = used.ru_maxrss * if cfg!(target_os = "macos") { 1 } else { 1024 };
    println!("{status} {started} {wall} {cpu} {memory}");
}

#[allow(unsafe_code, reason = "only wait4 returns the usage of one child")]
fn wait(child: &std::process::Child) -> (i32, libc::rusage) {
    let pid = libc::pid_t::try_from(child.id()).expect("a process number");
    // SAFETY: rusage consists of plain numbers, for which zero is valid.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both pointers are to live values of the types that wait4 writes, and the child hasn't been waited for
    // yet.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) };
    assert_eq!(waited, pid, "the child's end");
    (status, used)
}

/// Measures a command that must exit with code 0.
pub(crate) fn measure(command: &mut Command) -> Result<Measurement, String> {
    measure_with_code(command, 0)
}

/// Measures a command that must exit with a given code.
pub(crate) fn measure_with_code(command: &mut Command, code: i32) -> Result<Measurement, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match words.as_slice() {
        // The status from `wait4` has the exit code in its second byte.
        [status, started, wall, cpu, memory] if *status == f64::from(code << 8) => {
            Ok(Measurement { started: *started, wall: *wall, cpu: *cpu, memory: *memory as u64 })
        }
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(format!("failed: {}", errors.lines().last().unwrap_or("no message")))
        }
    }
}

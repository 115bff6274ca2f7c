//! A program on a terminal: what it draws, also after the size of the terminal has changed.

use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::program::Program;

/// How long to wait for something on the screen. Far more than it takes.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How many lines that have left the screen are kept.
const SCROLLBACK: usize = 1_000;

/// How a terminal treats the lines on the screen when it gets narrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Narrowing {
    /// Lines are cut off, as in xterm.
    Cuts,
    /// Lines are wrapped again, and the cursor stays at its character, as in most terminals.
    Wraps,
}

/// A running program whose output is a terminal. Killed on drop.
pub(crate) struct Terminal {
    child: Child,
    controller: OwnedFd,
    screen: Arc<Mutex<Screen>>,
    reader: Option<JoinHandle<()>>,
}

struct Screen {
    parser: vt100::Parser,
    /// Everything that was written.
    raw: Vec<u8>,
}

impl Screen {
    /// Whether the live lines have arrived as a whole.
    fn has_whole_frame(&self) -> bool {
        let last = |sequence: &[u8]| self.raw.windows(sequence.len()).rposition(|bytes| bytes == sequence);
        last(b"\x1b[?7l") <= last(b"\x1b[?7h")
    }
}

impl Terminal {
    /// Starts a program on a terminal with this many columns and rows.
    pub(crate) fn start(program: Program, columns: u16, rows: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        // Not every system does that when it is opened.
        rustix::io::fcntl_setfd(&controller, rustix::io::FdFlags::CLOEXEC).expect("a terminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("a terminal");
        set_size(&controller, columns, rows);
        let name = ptsname(&controller, Vec::new()).expect("the name of the terminal");
        let device = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("the terminal");
        let mut command = program.into_command();
        let copy = || Stdio::from(device.try_clone().expect("the terminal"));
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm");
        }
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = command.spawn().expect("the executable starts");
        // So that reading ends with the program.
        drop((command, device));
        let parser = vt100::Parser::new(size(rows), size(columns), SCROLLBACK);
        let screen = Arc::new(Mutex::new(Screen { parser, raw: Vec::new() }));
        let (shared, mut input) = (Arc::clone(&screen), File::from(controller.try_clone().expect("the terminal")));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = input.read(&mut bytes) {
                let mut screen = lock(&shared);
                screen.raw.extend(&bytes[..count]);
                screen.parser.process(&bytes[..count]);
            }
        });
        Self { child, controller, screen, reader: Some(reader) }
    }

    /// The lines on the screen, without blanks at their ends and without empty lines at the end.
    pub(crate) fn lines(&self) -> Vec<String> {
        lines(lock(&self.screen).parser.screen())
    }

    /// Everything that was written, with escape sequences.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&lock(&self.screen).raw).into_owned()
    }

    /// Waits until the lines on the screen are as wanted, and returns them.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, is_wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (lines, is_whole) = {
                let screen = lock(&self.screen);
                (lines(screen.parser.screen()), screen.has_whole_frame())
            };
            if is_whole && is_wanted(&lines) {
                return lines;
            }
            assert!(Instant::now() < deadline, "{what}: the screen is\n{}", lines.join("\n"));
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Changes the size of the terminal, between two redraws.
    pub(crate) fn resize(&self, columns: u16, rows: u16, narrowing: Narrowing) {
        let deadline = Instant::now() + TIMEOUT;
        let mut screen = lock(&self.screen);
        while !screen.raw.ends_with(b"\x1b[?7h") {
            drop(screen);
            assert!(Instant::now() < deadline, "no live lines are drawn");
            thread::sleep(Duration::from_millis(1));
            screen = lock(&self.screen);
        }
        match narrowing {
            Narrowing::Cuts => screen.parser.screen_mut().set_size(size(rows), size(columns)),
            Narrowing::Wraps => screen.parser = rewrapped(screen.parser.screen(), columns, rows),
        }
        set_size(&self.controller, columns, rows);
    }

    /// Presses keys.
    pub(crate) fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.controller, keys).expect("the terminal takes keys");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal to the program");
    }

    /// Waits for the end of the program, and returns its status and the lines on the screen.
    pub(crate) fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().expect("the program's end");
        self.reader.take().expect("it is waited for once").join().expect("the reader ends");
        (status, self.lines())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn lines(screen: &vt100::Screen) -> Vec<String> {
    let (_, columns) = screen.size();
    let mut lines: Vec<String> = screen.rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// The same lines in another width, with the cursor at the same character.
fn rewrapped(screen: &vt100::Screen, columns: u16, rows: u16) -> vt100::Parser {
    let mut parser = vt100::Parser::new(size(rows), size(columns), SCROLLBACK);
    let (cursor_row, cursor_column) = screen.cursor_position();
    assert_eq!(cursor_column, 0, "between two redraws, the cursor is at the beginning of a line");
    let mut cursor = (0, 0);
    for (number, line) in lines(screen).iter().enumerate() {
        if number > 0 {
            parser.process(b"\r\n");
        }
        if number == usize::from(cursor_row) {
            cursor = parser.screen().cursor_position();
        }
        parser.process(line.as_bytes());
    }
    assert!(parser.screen().cursor_position().0 + 1 < rows, "nothing scrolls in this test");
    parser.process(format!("\x1b[{};{}H", cursor.0 + 1, cursor.1 + 1).as_bytes());
    parser
}

fn size(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has columns and rows")
}

fn set_size(terminal: &impl AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("the size of the terminal");
}

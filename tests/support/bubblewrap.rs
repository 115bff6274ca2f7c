//! Whether bubblewrap can be tested here.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::report_skipped;

/// Whether the bubblewrap on the `PATH` works on this machine. If not, a note is printed.
pub(crate) fn bubblewrap_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let works = *WORKS.get_or_init(|| {
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/"]);
        bwrap.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true"]);
        bwrap.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    if !works {
        report_skipped("bubblewrap isn't on the PATH, or doesn't work here");
    }
    works
}

/// The first program of this name on the `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

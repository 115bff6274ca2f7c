//! The executable. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(legwork::cli::main())
}

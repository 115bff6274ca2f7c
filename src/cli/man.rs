//! `legwork man`: the manual pages.

use std::io;
use std::path::{Path, PathBuf};

use super::env::CliEnv;
use crate::error::Error;

/// Options of `legwork man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --out, writes legwork.1, and legwork-run.1 and so on, a page for each command. `man -l legwork.1` shows a page.

Exit codes: 0, or 5 if a file can't be written.")]
pub(super) struct ManArgs {
    /// Print the page of this command instead of the main page
    #[arg(conflicts_with = "out")]
    command: Option<String>,
    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes pages of the whole command line.
pub(super) fn man(options: &ManArgs, command: clap::Command, env: &CliEnv) -> Result<u8, Error> {
    if let Some(folder) = &options.out {
        write_pages(command, folder).map_err(Error::environment(format!("can't write to {}", folder.display())))?;
        return Ok(0);
    }
    let command = match &options.command {
        None => command,
        Some(name) => {
            let found = commands(command).find(|(known, _)| known == name).map(|(_, page)| page);
            found.ok_or_else(|| {
                Error::usage(format!("there is no command `{name}`"), "`legwork --help` lists the commands.")
            })?
        }
    };
    env.console.print(page(command).map_err(Error::environment("the page can't be made"))?.trim_end());
    Ok(0)
}

/// Each command that is documented, as a page of its own.
fn commands(main: clap::Command) -> impl Iterator<Item = (String, clap::Command)> {
    let mut main = main;
    // Gives the commands their full names and the options that they inherit.
    main.build();
    let commands: Vec<_> = main
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
        .cloned()
        .collect();
    commands.into_iter().map(|command| (command.get_name().to_owned(), command))
}

fn page(command: clap::Command) -> io::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write_pages(main: clap::Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("legwork.1"), page(main.clone())?)?;
    for (name, command) in commands(main) {
        std::fs::write(folder.join(format!("legwork-{name}.1")), page(command)?)?;
    }
    Ok(())
}

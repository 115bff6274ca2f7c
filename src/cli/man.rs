//! `legwork man`: the manual pages.

use std::io;
use std::path::{Path, PathBuf};

use super::env::CliEnv;
use super::version::VERSION;
use crate::error::Error;

/// Options of `legwork man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --out, writes legwork.1, and legwork-run.1 and so on, a page for each command. `man -l legwork.1` shows a page.

Exit codes: 0, or 5 if a file can't be written.")]
pub(super) struct ManArgs {
    /// Print the page of this command, such as `runs prune`, instead of the main page
    #[arg(conflicts_with = "out")]
    command: Vec<String>,
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
    let name = ["legwork"].into_iter().chain(options.command.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    let Some((_, command)) = pages(command).into_iter().find(|(known, _)| *known == name) else {
        let message = format!("there is no command `{}`", options.command.join(" "));
        return Err(Error::usage(message, "`legwork --help` lists the commands."));
    };
    env.console.print(render(command).map_err(Error::environment("the page can't be made"))?.trim_end());
    Ok(0)
}

/// The commands, each with the name of its page.
fn pages(main: clap::Command) -> Vec<(String, clap::Command)> {
    let mut main = without_help(main);
    // Gives the commands their full names and the options that they inherit.
    main.build();
    let mut pages = vec![main];
    let mut next = 0;
    while let Some(command) = pages.get(next) {
        let below: Vec<_> = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
        pages.extend(below);
        next += 1;
    }
    let name = |command: &clap::Command| command.get_display_name().unwrap_or(command.get_name()).to_owned();
    pages.into_iter().map(|command| (name(&command), command)).collect()
}

/// A page would refer to a page of the command `help`.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn render(command: clap::Command) -> io::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).source(format!("legwork {VERSION}")).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write_pages(main: clap::Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, command) in pages(main) {
        std::fs::write(folder.join(format!("{name}.1")), render(command)?)?;
    }
    Ok(())
}

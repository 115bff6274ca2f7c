//! `legwork explain`: what a finding's code stands for.

use std::io::IsTerminal;

use super::{Surroundings, format_parser};
use crate::diagnostic::{Rule, nearest};
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::plan;

/// Options of `legwork explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// What stands in brackets in findings, such as unknown-tool; without one, all are listed
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
    /// How to print; default: text on a terminal, markdown elsewhere
    #[arg(long, value_parser = format_parser(Subject::Rules))]
    format: Option<String>,
}

pub(super) fn explain(options: &Options, around: &Surroundings) -> Result<u8, Error> {
    let mut all: Vec<&'static Rule> = plan::rules().collect();
    all.sort_by_key(|rule| rule.code);
    let usual = if std::io::stdout().is_terminal() { "text" } else { "markdown" };
    let look = around.out.look();
    let format = formats::find(options.format.as_deref().unwrap_or(usual));
    let text = if options.codes.is_empty() {
        format.and_then(|format| format.list(&all, look))
    } else {
        let rules = options.codes.iter().map(|code| find(&all, code)).collect::<Result<Vec<_>, _>>()?;
        format.and_then(|format| format.pages(&rules, look))
    };
    around.out.formatted(options.format.as_deref().unwrap_or(usual), &text.unwrap_or_default());
    Ok(0)
}

/// The rule of a code, which may also be written as it stands in a finding: `error[unknown-tool]`.
fn find(all: &[&'static Rule], written: &str) -> Result<&'static Rule, Error> {
    let in_brackets = written.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    let code = in_brackets.unwrap_or(written);
    let known = || all.iter().map(|rule| rule.code);
    all.iter().copied().find(|rule| rule.code == code).ok_or_else(|| Error::Usage {
        message: format!("no finding has the code `{code}`"),
        hint: Some(match nearest(code, known()) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => "`legwork explain` lists all codes.".into(),
        }),
    })
}

//! `legwork explain`: what a finding's code stands for.

use std::io::IsTerminal;

use super::{CliEnv, format_parser};
use crate::diagnostic::{Rule, suggest_name};
use crate::error::Error;
use crate::formats::{self, Subject};
use crate::plan;

/// Options of `legwork explain`.
#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// What stands in brackets in findings, such as unknown-tool; without one, all are listed
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
    /// How to print; default: text on a terminal, markdown elsewhere
    #[arg(long, value_parser = format_parser(Subject::Rules))]
    format: Option<String>,
}

pub(super) fn explain(options: &ExplainArgs, around: &CliEnv) -> Result<u8, Error> {
    let mut all: Vec<&'static Rule> = plan::rules().collect();
    all.sort_by_key(|rule| rule.code);
    let usual = if std::io::stdout().is_terminal() { "text" } else { "markdown" };
    let look = around.console.stdout_display();
    let format = formats::find(options.format.as_deref().unwrap_or(usual));
    let text = if options.codes.is_empty() {
        format.and_then(|format| format.rule_list(&all, look))
    } else {
        let rules = options.codes.iter().map(|code| find_rule(&all, code)).collect::<Result<Vec<_>, _>>()?;
        format.and_then(|format| format.rule_pages(&rules, look))
    };
    around.console.print_formatted(options.format.as_deref().unwrap_or(usual), &text.unwrap_or_default());
    Ok(0)
}

/// The rule of a code, which may also be written as it stands in a finding: `error[unknown-tool]`.
fn find_rule(all: &[&'static Rule], written: &str) -> Result<&'static Rule, Error> {
    let in_brackets = written.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    let code = in_brackets.unwrap_or(written);
    let known = || all.iter().map(|rule| rule.code);
    all.iter().copied().find(|rule| rule.code == code).ok_or_else(|| Error::Usage {
        message: format!("no finding has the code `{code}`"),
        hint: Some(match suggest_name(code, known()) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => "`legwork explain` lists all codes.".into(),
        }),
    })
}

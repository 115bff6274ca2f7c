//! `legwork explain`: explains the codes of findings.

use std::io::IsTerminal;

use super::arguments::format_parser;
use super::env::CliEnv;
use crate::diagnostic::{Rule, suggest_name};
use crate::error::Error;
use crate::plan;
use crate::reports;

/// Options of `legwork explain`.
#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// The code in brackets of a finding, such as unknown-tool; default: list all codes
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
    /// The output format; default: text on a terminal, else markdown
    #[arg(long, value_parser = format_parser(reports::RULE_PAGES))]
    format: Option<String>,
}

pub(super) fn explain(options: &ExplainArgs, env: &CliEnv) -> Result<u8, Error> {
    let mut all: Vec<&'static Rule> = plan::rules().collect();
    all.sort_by_key(|rule| rule.code);
    let default = if std::io::stdout().is_terminal() { "text" } else { "markdown" };
    let display = env.console.stdout_display();
    let format = options.format.as_deref().unwrap_or(default);
    let text = if options.codes.is_empty() {
        reports::find(reports::RULE_LISTS, format)(&all, display)
    } else {
        let rules = options.codes.iter().map(|code| find_rule(&all, code)).collect::<Result<Vec<_>, _>>()?;
        reports::find(reports::RULE_PAGES, format)(&rules, display)
    };
    env.console.print_formatted(format, &text);
    Ok(0)
}

/// The rule with a code, which may also be given as in a finding: `error[unknown-tool]`.
fn find_rule(all: &[&'static Rule], argument: &str) -> Result<&'static Rule, Error> {
    let in_brackets = argument.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    let code = in_brackets.unwrap_or(argument);
    let known = || all.iter().map(|rule| rule.code);
    all.iter().copied().find(|rule| rule.code == code).ok_or_else(|| {
        Error::usage(
            format!("unknown code `{code}`"),
            match suggest_name(code, known()) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => "`legwork explain` lists all codes.".into(),
            },
        )
    })
}

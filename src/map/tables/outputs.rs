//! How a map ended as variables for the later steps and jobs of a CI system.

use std::path::Path;

use super::table::MapTable;
use crate::reports::ci_variables::{Variable, add_files};

/// The variables of a map, with the exit code of the command.
pub fn ci_variables(table: &MapTable, exit_code: u8, folder: &Path, current: &Path) -> Vec<Variable> {
    let (_, cost, unknown) = table.totals();
    let completed = table.rows.iter().filter(|row| row.is_good()).count();
    let mut variables = vec![
        ("exit-code", exit_code.to_string()),
        ("rows", table.rows.len().to_string()),
        ("completed", completed.to_string()),
        ("cost-usd", if unknown == 0 { cost.to_string() } else { String::new() }),
        ("record", folder.to_string_lossy().into_owned()),
    ];
    let files = [("report", "report.html"), ("table", "results.csv"), ("results", "results.jsonl")];
    add_files(&mut variables, folder, current, &files);
    variables
}

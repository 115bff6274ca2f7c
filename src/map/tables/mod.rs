//! The tables of a map: its rows as data, and the formats that show them.

mod csv;
mod files;
mod html;
mod junit;
mod outputs;
mod step_summary;
mod table;
mod text;

pub use self::files::{TableFiles, foreign_file};
pub use self::outputs::ci_variables;
pub use self::step_summary::step_summary;
pub use self::table::{MapRow, MapTable, ProblemKind, RowState, RowSummary, TABLE_FORMAT, TableProblem};
pub use self::text::{map_rows, map_summary};
use crate::reports::{DisplayOptions, Formats};

/// The joined tables of one or several folders of maps.
pub static GATHERED: Formats<fn(&MapTable, DisplayOptions) -> String> =
    &[("text", text::gathered), ("json", text::gathered_json)];

//! Templates: minijinja, set up once. They are read and checked before a run, and rendered from memory.
//!
//! A [`Loader`] takes every text of a job that may hold template tags, follows its includes and finds everything wrong
//! without rendering; what is left is [`Templates`], which renders and touches no disk. A value can't change a
//! template's structure, and rendered text is never rendered again.

mod check;
mod check_context;
mod engine;
mod exports;
mod instrument;
mod job_dir;
mod loader;
mod name_check;
mod partial_render;
mod render_limits;
mod scopes;
mod syntax_errors;
mod syntax_tree;
mod tags;
mod texts;
mod tracked_inputs;
mod type_check;
mod variables;

use crate::diagnostic::{Rule, rule};

pub use engine::{Engine, MAX_RENDERED_BYTES};
pub use job_dir::{FileId, JobDir, MAX_FILE_BYTES, PromptFileError, leaves_dir, normalize_text};
pub use loader::{Loader, MAX_FILES};
pub use name_check::TextRole;
pub use partial_render::{PartialRender, PartialRenderer};
pub use tags::{StrayTag, TagPurpose, stray_tags};
pub use texts::{Template, Templates};
pub use variables::{TemplateVariables, UsedInputs, ValueType};

/// What checking templates can find.
pub const RULES: &[Rule] = &[
    rule!(Error "template-syntax"),
    rule!(Error "undefined-variable"),
    rule!(Error "unknown-filter"),
    rule!(Error "unknown-test"),
    rule!(Error "unknown-function"),
    rule!(Error "secret-in-template"),
    rule!(Error "untrusted-in-system"),
    rule!(Error "dynamic-include"),
    rule!(Error "include-cycle"),
    rule!(Error "too-many-includes"),
    rule!(Error "outside-folder"),
    rule!(Error "unreadable-file"),
    rule!(Error "render-failed"),
    rule!(Error "macro-arguments"),
    rule!(Warning "single-brace"),
];

#[cfg(test)]
mod tests;

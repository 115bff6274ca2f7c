//! Loads, checks and renders the templates of a job. The template engine is minijinja.
//!
//! A [`Loader`] takes the texts of a job, follows their includes and finds every error without rendering. Its result is
//! [`Templates`], whose [`Engine`] renders without reading files. A value can't change a template's structure, and rendered
//! text is never rendered again.

mod check;
mod check_context;
mod engine;
mod exports;
mod instrument;
mod job_dir;
mod late;
mod loader;
mod name_check;
mod partial_render;
mod placeholder;
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

/// The rules that the check of templates reports.
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
    rule!(Warning "dollar-before-tag"),
];

#[cfg(test)]
mod tests;

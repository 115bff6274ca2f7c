//! JSON Schemas of our files, made from the types and tables that read them.

mod dynamic_enums;
mod tidy;
mod events;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub use self::events::event_schema;
use crate::event::RunResult;
use crate::job::Job;
use crate::providers::replay::ScriptFile;

/// The schema of a job file for editors. It is draft 7, because their YAML support is best for that. It rejects only what
/// `validate` rejects, and all of that which a schema can express (not, for example, an undeclared variable).
///
/// It has no references: draft 7 ignores keywords next to one, such as the descriptions and defaults that editors show.
pub fn job_schema() -> Value {
    let mut schema = inlined_schema::<Job>();
    tidy::drop_nulls(&mut schema);
    tidy::tidy_for_editors(&mut schema);
    dynamic_enums::fill_enums(&mut schema);
    tidy::nest_fallbacks(&mut schema);
    tidy::describe(&mut schema);
    schema
}

/// The schema of a script for editors, draft 7.
pub fn script_schema() -> Value {
    editor_schema_of::<ScriptFile>()
}

/// The schema of another file for editors, draft 7.
pub fn editor_schema_of<T: JsonSchema>() -> Value {
    let mut schema = inlined_schema::<T>();
    tidy::merge_nullable_choice(&mut schema);
    tidy::tidy_for_editors(&mut schema);
    tidy::describe(&mut schema);
    schema
}

/// The schema of `result.json`, draft 2020-12.
pub fn result_schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RunResult>().to_value()
}

fn inlined_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

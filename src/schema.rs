//! JSON Schema of what people write and programs read, made from the types and tables that read it.

mod events;
mod form;
mod known;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub use self::events::event_schema;
use crate::event::RunResult;
use crate::job::Job;
use crate::providers::replay::ScriptFile;

/// The schema of a job file, draft 7, for editors: their YAML support knows no later one well. It refuses what
/// `validate` refuses wherever such a schema can tell (a variable that isn't declared, it can't), and nothing else.
///
/// It has no references: what stands beside one is lost on a reader of draft 7, and that are the very descriptions and
/// defaults that an editor is to show.
pub fn job_schema() -> Value {
    let mut schema = inlined::<Job>();
    form::drop_nulls(&mut schema);
    form::tidy(&mut schema);
    known::fill(&mut schema);
    form::describe(&mut schema);
    schema
}

/// The schema of a script, draft 7, for editors.
pub fn script_schema() -> Value {
    for_editors::<ScriptFile>()
}

/// The schema of another file that people write, draft 7.
pub fn for_editors<T: JsonSchema>() -> Value {
    let mut schema = inlined::<T>();
    form::join_nulls(&mut schema);
    form::tidy(&mut schema);
    form::describe(&mut schema);
    schema
}

/// The schema of `result.json`, draft 2020-12.
pub fn result_schema() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RunResult>().to_value()
}

fn inlined<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

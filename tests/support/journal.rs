//! The lines of a journal, checked as other programs could check them: against the schema, and their checksums.

use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Errors of a line according to the schema of the repository.
pub(crate) fn schema_error(line: &Value) -> Option<String> {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    errors_of(&SCHEMA, include_str!("../../schemas/events.schema.json"), line)
}

/// Errors of a `result.json` according to the schema of the repository.
pub(crate) fn result_error(result: &Value) -> Option<String> {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    errors_of(&SCHEMA, include_str!("../../schemas/result.schema.json"), result)
}

/// Errors of a list of runs according to the schema of the repository.
pub(crate) fn list_error(list: &Value) -> Option<String> {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    errors_of(&SCHEMA, include_str!("../../schemas/runs.schema.json"), list)
}

fn errors_of(schema: &OnceLock<Validator>, text: &str, value: &Value) -> Option<String> {
    let schema = schema.get_or_init(|| {
        let schema: Value = serde_json::from_str(text).expect("JSON");
        jsonschema::options().should_validate_formats(true).build(&schema).expect("a schema")
    });
    let faults: Vec<String> = schema.iter_errors(value).map(|fault| fault.to_string()).collect();
    (!faults.is_empty()).then(|| faults.join("\n"))
}

/// A line without its checksum, and the checksum.
fn split_checksum(line: &str) -> Option<(&str, &str)> {
    line.strip_suffix("\"}")?.rsplit_once(",\"sum\":\"")
}

/// The checksum of a line that follows a line with the checksum `before`.
fn checksum(before: &str, body: &str) -> String {
    let digest = Sha256::digest(format!("{before}{body}"));
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A changed journal with correct checksums.
pub(crate) fn with_checksums(text: &str) -> String {
    let mut before = String::new();
    let line = |line: &str| {
        let (body, _) = split_checksum(line).expect("a line with a sum");
        before = checksum(&before, body);
        format!("{body},\"sum\":\"{before}\"}}\n")
    };
    text.lines().map(line).collect()
}

/// The lines of a journal without a torn end. Every line matches the schema, and has the checksum that the book
/// describes.
#[track_caller]
pub(crate) fn checked_lines(name: &str, text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line of {name} is torn");
    let mut before = String::new();
    let parse = |(at, line): (usize, &str)| {
        let place = format!("line {} of {name}: {line}", at + 1);
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {place}"));
        if let Some(fault) = schema_error(&value) {
            panic!("{fault}: {place}");
        }
        let (body, written) = split_checksum(line).expect(&place);
        before = checksum(&before, body);
        assert_eq!(written, before, "{place}");
        assert_eq!(value["seq"], at + 1, "{place}");
        value
    };
    text.lines().enumerate().map(parse).collect()
}

//! Parses and checks the values of inputs.

use std::num::IntErrorKind;
use std::path::Path;

use serde_json::Value;

use super::input::with_article;
use super::{Input, InputType};
use crate::template::leaves_dir;

/// What is wrong with an integer that is too large or too small.
const DOES_NOT_FIT: &str = "doesn't fit into a 64-bit integer";

/// How the items of a list are separated in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListSeparator {
    /// By commas, as on a command line. White space around an item is removed.
    Commas,
    /// By line ends, as in a file. Empty lines are removed.
    Lines,
}

/// Parses a text as a value of an input's type.
///
/// # Errors
/// The text isn't of that type; the message doesn't repeat the text.
pub fn parse_value(kind: InputType, text: &str, listing: ListSeparator) -> Result<Value, String> {
    match kind {
        InputType::String | InputType::Path | InputType::Image => Ok(Value::from(text)),
        InputType::Integer => text.parse::<i64>().map(Value::from).map_err(|error| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => DOES_NOT_FIT.to_owned(),
            _ => "isn't a whole number".to_owned(),
        }),
        InputType::Number => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Ok(Value::from(whole)),
            (_, Ok(number)) if number.is_finite() => Ok(Value::from(number)),
            _ => Err("isn't a number".to_owned()),
        },
        InputType::Boolean => match text {
            "true" => Ok(Value::from(true)),
            "false" => Ok(Value::from(false)),
            _ => Err("isn't `true` or `false`".to_owned()),
        },
        InputType::List => {
            let items: Vec<&str> = match listing {
                ListSeparator::Commas if text.trim().is_empty() => Vec::new(),
                ListSeparator::Commas => text.split(',').map(str::trim).collect(),
                ListSeparator::Lines => text.lines().filter(|line| !line.trim().is_empty()).collect(),
            };
            Ok(Value::from(items))
        }
    }
}

/// Checks a value against an input's type and enum. A path must be below `workspace`, if that is known; an absolute path is
/// made relative to it.
///
/// # Errors
/// The value doesn't fit; the message doesn't repeat the value.
pub fn check_value(input: &Input, value: Value, workspace: Option<&str>) -> Result<Value, String> {
    match (input.kind.value, &value) {
        (InputType::String, Value::String(text)) => check_choice(input, text).map(|()| value),
        (InputType::Path | InputType::Image, Value::String(path)) => check_path(path, workspace).map(Value::from),
        (InputType::Integer, Value::Number(number)) if number.is_i64() => Ok(value),
        (InputType::Integer, Value::Number(number)) if number.is_u64() => Err(DOES_NOT_FIT.to_owned()),
        (InputType::Number, Value::Number(_)) | (InputType::Boolean, Value::Bool(_)) => Ok(value),
        (InputType::List, Value::Array(items)) => match items.iter().position(|item| !item.is_string()) {
            None => Ok(value),
            Some(at) => Err(format!("isn't a list of strings: item {} is {}", at + 1, type_name(&items[at]))),
        },
        (InputType::Image, other) => Err(format!("is {}, not the path of an image", type_name(other))),
        (kind, other) => Err(format!("is {}, not {}", type_name(other), with_article(kind.noun()))),
    }
}

fn check_choice(input: &Input, text: &str) -> Result<(), String> {
    match &input.choices {
        Some(choices) if !choices.value.iter().any(|choice| choice.value == text) => {
            let choices: Vec<String> = choices.value.iter().map(|choice| format!("`{}`", choice.value)).collect();
            Err(format!("isn't one of {}", choices.join(", ")))
        }
        _ => Ok(()),
    }
}

fn check_path(path: &str, workspace: Option<&str>) -> Result<String, String> {
    if path.is_empty() {
        return Err("is empty".to_owned());
    }
    if path.contains('\0') {
        return Err("isn't a path: it has a NUL character".to_owned());
    }
    let relative = match Path::new(path).strip_prefix(workspace.unwrap_or_default()) {
        Ok(relative) if Path::new(path).is_absolute() => relative.to_string_lossy().into_owned(),
        _ => path.to_owned(),
    };
    match relative.as_str() {
        _ if leaves_dir(&relative) => Err("leads out of the workspace".to_owned()),
        _ if workspace.is_some_and(|workspace| leaves_by_symlink(Path::new(workspace), &relative)) => {
            Err("leads out of the workspace through a symbolic link".to_owned())
        }
        "" => Ok(".".to_owned()),
        _ => Ok(relative),
    }
}

/// Whether a symbolic link in a path leads out of the workspace. Parts that don't exist yet lead nowhere.
fn leaves_by_symlink(workspace: &Path, relative: &str) -> bool {
    let Ok(root) = workspace.canonicalize() else { return false };
    let path = root.join(relative);
    let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok());
    // A dangling link can't be resolved, so it counts as leading out.
    existing.is_some_and(|path| path.canonicalize().map_or(true, |real| !real.starts_with(&root)))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_that_a_link_leads_out_of_the_workspace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("workspace");
        std::fs::create_dir_all(workspace.join("real")).unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        for (link, target) in [("out", "../outside"), ("within", "real"), ("nowhere", "absent")] {
            std::os::unix::fs::symlink(target, workspace.join(link)).unwrap();
        }
        let beneath = |path| check_path(path, workspace.to_str());
        for (path, fine) in [
            ("real", true),
            ("within/new", true),
            ("new/deeper", true),
            ("out", false),
            ("out/new", false),
            ("within/../out", false),
            ("nowhere", false),
        ] {
            assert_eq!(beneath(path).is_ok(), fine, "{path}");
        }
    }

    #[test]
    fn texts_become_typed_values() {
        let commas = |kind, text| parse_value(kind, text, ListSeparator::Commas);
        assert_eq!(commas(InputType::Integer, "-12"), Ok(json!(-12)));
        assert_eq!(commas(InputType::Number, "3"), Ok(json!(3)));
        assert_eq!(commas(InputType::Number, "3.5"), Ok(json!(3.5)));
        assert_eq!(commas(InputType::Boolean, "true"), Ok(json!(true)));
        assert_eq!(commas(InputType::List, "a, b,c"), Ok(json!(["a", "b", "c"])));
        assert_eq!(commas(InputType::List, ""), Ok(json!([])));
        assert_eq!(parse_value(InputType::List, "a,b\r\n\nc\n", ListSeparator::Lines), Ok(json!(["a,b", "c"])));
        for (kind, text) in [
            (InputType::Integer, "1.0"),
            (InputType::Integer, ""),
            (InputType::Integer, "99999999999999999999"),
            (InputType::Number, "NaN"),
            (InputType::Number, "inf"),
            (InputType::Boolean, "yes"),
        ] {
            assert!(commas(kind, text).is_err(), "{text}");
        }
    }

    #[test]
    fn paths_stay_beneath_the_workspace() {
        let beneath = |path| check_path(path, Some("/home/me/project"));
        assert_eq!(beneath("src/lib.rs"), Ok("src/lib.rs".to_owned()));
        assert_eq!(beneath("a/../b"), Ok("a/../b".to_owned()));
        assert_eq!(beneath("/home/me/project/src"), Ok("src".to_owned()));
        assert_eq!(beneath("/home/me/project"), Ok(".".to_owned()));
        for path in ["..", "a/../../b", "/etc/passwd", "/home/me/project2", "/home/me/project/../other", "", "a\0b"] {
            assert!(beneath(path).is_err(), "{path}");
        }
    }
}

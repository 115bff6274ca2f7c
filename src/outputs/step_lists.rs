//! Lists of a job's outputs that a trusted step before the agent prints. Until it has run, a list has one entry that names the step.

use serde_json::{Map, Value};

use super::output::{Kind, Outputs};
use super::policy_texts::{check_label, check_login};

/// The place of the lists that hold for all outputs.
const RULES: &str = "rules";
/// The most entries of such a list.
const MAX_ENTRIES: usize = 1_000;

/// The entry of a list that a step prints, before it has run.
pub fn unknown_list(step: &str) -> Vec<String> {
    vec![format!("<before.{step}>")]
}

/// Checks an entry of a list of this name.
///
/// # Errors
/// Says what is wrong, and what to write instead.
pub fn check_list_entry(field: &str, text: &str) -> Result<(), String> {
    match field {
        "mentions" => check_login(text),
        "paths" if text.is_empty() => Err("it is empty: remove it".to_owned()),
        "paths" => Ok(()),
        _ => check_label(text),
    }
}

/// An entry of a list of this name as it is compared: logins without `@`, hosts in lower case.
pub fn normal_list_entry(field: &str, text: &str) -> String {
    match field {
        "mentions" => text.trim_start_matches('@').to_owned(),
        "links" => text.to_ascii_lowercase(),
        _ => text.to_owned(),
    }
}

impl Outputs {
    /// With the lists that steps have printed.
    ///
    /// # Errors
    /// A value isn't a list of texts that can be published: a sentence.
    pub fn with_step_lists(&self, values: &Map<String, Value>) -> Result<Self, String> {
        let mut known = self.clone();
        for (place, step) in &self.from_steps {
            let (output, field) = place.split_once('.').unwrap_or((place, ""));
            // One that is optional, and isn't allowed now.
            if output != RULES && !self.allowed.contains_key(output) {
                continue;
            }
            let wrong = |why: &str| format!("the step `{step}` decides `outputs.{place}`, and {why}");
            let entries = values.get(step).and_then(Value::as_array);
            let entries =
                entries.ok_or_else(|| wrong("its value isn't a list: print JSON, and give the step a `schema`"))?;
            if entries.len() > MAX_ENTRIES {
                return Err(wrong(&format!("its list has more than {MAX_ENTRIES} entries")));
            }
            let mut texts: Vec<String> = Vec::new();
            for entry in entries {
                let text = entry.as_str().ok_or_else(|| wrong(&format!("`{entry}` in its list isn't a text")))?;
                check_list_entry(field, text).map_err(|why| wrong(&format!("{text:?} can't be in it: {why}")))?;
                let text = normal_list_entry(field, text);
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            let list = known.list_mut(output, field).ok_or_else(|| wrong("there is no such list"))?;
            *list = texts;
        }
        known.from_steps.clear();
        Ok(known)
    }

    fn list_mut(&mut self, output: &str, field: &str) -> Option<&mut Vec<String>> {
        match (output, field) {
            (RULES, "mentions") => return Some(&mut self.rules.mentions),
            (RULES, "links") => return Some(&mut self.rules.links),
            _ => {}
        }
        match (&mut self.allowed.get_mut(output)?.kind, field) {
            (Kind::PullRequest { labels, .. } | Kind::Issue { labels, .. }, "labels") => Some(labels),
            (Kind::Issue { choose, .. }, "choose") => Some(choose),
            (Kind::Labels { add, .. }, "add") => Some(add),
            (Kind::Labels { remove, .. }, "remove") => Some(remove),
            (Kind::PullRequest { patch, .. } | Kind::Push { patch }, "paths") => Some(&mut patch.paths),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::outputs::Output;

    #[test]
    fn lists_are_known_once_the_steps_have_run() {
        let kind = Kind::Labels { add: unknown_list("names"), remove: vec!["old".to_owned()] };
        let mut outputs = Outputs::default();
        let output = Output { target: None, max: 1, on_checks_failed: false, kind };
        outputs.allowed.insert("labels".to_owned(), output);
        outputs.from_steps.insert("labels.add".to_owned(), "names".to_owned());
        outputs.from_steps.insert("rules.mentions".to_owned(), "people".to_owned());
        let values = |names: Value| {
            let people = json!(["@octocat"]);
            [("names".to_owned(), names), ("people".to_owned(), people)].into_iter().collect::<Map<String, Value>>()
        };
        let known = outputs.with_step_lists(&values(json!(["bug", "docs", "bug"]))).unwrap();
        let (add, remove) = (vec!["bug".to_owned(), "docs".to_owned()], vec!["old".to_owned()]);
        assert_eq!(known.allowed["labels"].kind, Kind::Labels { add, remove });
        assert_eq!(known.rules.mentions, ["octocat"]);
        assert!(known.from_steps.is_empty());
        for (value, why) in [
            (json!("bug"), "its value isn't a list"),
            (Value::Null, "its value isn't a list"),
            (json!(["bug", 1]), "`1` in its list isn't a text"),
            (json!(["a\nb"]), "can't be in it: it has a line break"),
            (json!(vec!["x"; 1_001]), "more than 1000 entries"),
        ] {
            let error = outputs.with_step_lists(&values(value)).unwrap_err();
            assert!(
                error.starts_with("the step `names` decides `outputs.labels.add`") && error.contains(why),
                "{error}"
            );
        }
        assert!(outputs.with_step_lists(&Map::new()).is_err());
    }
}

//! The checks of an output's data, at the call and again before it is published.

use serde_json::{Map, Value, json};

use super::MAX_BODY_CHARS;
use super::entry::{MAX_KEY, is_key};
use super::output::{Kind, Output, Outputs, Target};
use super::text_rules::{OwnRepository, TextRules, check_body, check_message, check_title};
use super::trigger::Trigger;
use crate::json_schema::SchemaValidator;

/// The longest input of a call, in bytes: four texts of the greatest length.
const MAX_INPUT_BYTES: usize = 2 << 20;
/// How many violations of a schema the model reads.
const MAX_VIOLATIONS: usize = 20;
/// The longest path in a review, in bytes.
const MAX_PATH_BYTES: u32 = 4_096;

/// Checks the calls of one output.
#[derive(Debug)]
pub struct Checker {
    input_schema: Value,
    validator: SchemaValidator,
}

/// A call's input that is valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The `key`, if the model gave one.
    pub key: Option<String>,
    /// The issue or pull request that it is for.
    pub target: Option<u64>,
    /// The rest of the input.
    pub data: Value,
}

impl Checker {
    /// For an output of a job.
    ///
    /// # Errors
    /// The schema of a command's data is invalid. A plan that was made from a job has valid ones.
    pub fn new(output: &Output) -> Result<Self, String> {
        let input_schema = input_schema(output);
        Ok(Self { validator: SchemaValidator::new(&input_schema)?, input_schema })
    }

    /// JSON Schema of the call's input.
    pub fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    /// Checks a call's input.
    ///
    /// # Errors
    /// Says to the model what is wrong, and where.
    pub fn check_input(&self, outputs: &Outputs, output: &Output, input: &str) -> Result<Checked, String> {
        if input.len() > MAX_INPUT_BYTES {
            return Err(format!(
                "the input has {} bytes; a text can have at most {MAX_BODY_CHARS} characters",
                input.len()
            ));
        }
        let mut input: Value = serde_json::from_str(input).map_err(|error| format!("this isn't JSON: {error}"))?;
        self.validate(&input)?;
        let Value::Object(fields) = &mut input else { return Err("expected an object".to_owned()) };
        let key = fields.shift_remove("key").and_then(|key| key.as_str().map(str::to_owned));
        if let Some(key) = key.as_ref().filter(|key| !is_key(key)) {
            return Err(format!("`key` is 1 to {MAX_KEY} of `A-Za-z0-9._/-`, and this isn't: {key:?}"));
        }
        let number = fields.shift_remove("number").map(|number| whole_number(&number)).transpose()?;
        let target = self.target(outputs, output, number)?;
        check_data(outputs, output, &input)?;
        Ok(Checked { key, target, data: input })
    }

    /// Checks the data of an accepted output again, with the policy of a job.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    pub fn check_entry(&self, outputs: &Outputs, output: &Output, entry: &super::Entry) -> Result<(), String> {
        if let Some(key) = entry.key.as_ref().filter(|key| !is_key(key) || **key != entry.id) {
            return Err(format!("`key` isn't a key: {key:?}"));
        }
        let mut whole = entry.data.clone();
        let Value::Object(fields) = &mut whole else { return Err("its data isn't an object".to_owned()) };
        if fields.contains_key("key") || fields.contains_key("number") {
            return Err("its data has a `key` or a `number`".to_owned());
        }
        if let (Some(Target::Any), Some(number)) = (output.target, entry.target) {
            fields.insert("number".to_owned(), number.into());
        }
        self.validate(&whole)?;
        let number = entry.target.filter(|_| output.target == Some(Target::Any));
        if self.target(outputs, output, number)? != entry.target {
            return Err("it is for another issue or pull request than the job allows".to_owned());
        }
        check_data(outputs, output, &entry.data)
    }

    fn validate(&self, input: &Value) -> Result<(), String> {
        let (violations, more) = self.validator.violations(input, MAX_VIOLATIONS);
        if violations.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = violations.iter().map(|violation| format!("- {violation}")).collect();
        let rest = if more > 0 { format!("\n- and {more} more") } else { String::new() };
        Err(format!("the input doesn't fit:\n{}{rest}", lines.join("\n")))
    }

    /// The issue or pull request that a call is for.
    fn target(&self, outputs: &Outputs, output: &Output, number: Option<u64>) -> Result<Option<u64>, String> {
        match output.target {
            None => Ok(None),
            Some(Target::Number(number)) => Ok(Some(number)),
            Some(Target::Any) => number.map(Some).ok_or_else(|| "`number` is missing".to_owned()),
            Some(Target::Trigger) => match outputs.trigger.as_ref().and_then(|trigger| trigger.number) {
                Some(number) => Ok(Some(number)),
                None => Err("this run wasn't started by an issue or a pull request".to_owned()),
            },
        }
    }
}

/// The number of an issue or a pull request, which JSON can write as `3.0`, too.
fn whole_number(number: &Value) -> Result<u64, String> {
    const MOST: f64 = (1_u64 << 53) as f64;
    let written_as_fraction = || number.as_f64().filter(|value| value.fract() == 0.0 && (1.0..=MOST).contains(value));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a whole number in range")]
    let found = number.as_u64().or_else(|| written_as_fraction().map(|value| value as u64));
    found.ok_or_else(|| format!("`number` is {number}, which no issue or pull request has"))
}

/// JSON Schema of the tool `nothing_to_do`.
pub fn nothing_to_do_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "reason": { "type": "string", "minLength": 1, "maxLength": 2_000, "description": "Why, in one or two sentences." } },
        "required": ["reason"],
        "additionalProperties": false,
    })
}

/// JSON Schema of a call's input.
fn input_schema(output: &Output) -> Value {
    let text = |what: &str| json!({ "type": "string", "minLength": 1, "description": what });
    let body = || text("Markdown.");
    let title = || text("One line.");
    let (mut properties, mut required): (Map<String, Value>, Vec<&str>) = (Map::new(), Vec::new());
    let mut add = |name: &'static str, schema: Value, is_required: bool| {
        properties.insert(name.to_owned(), schema);
        required.extend(is_required.then_some(name));
    };
    match &output.kind {
        Kind::Comment { .. } => add("body", body(), true),
        Kind::Review { max_comments, .. } => {
            add("body", body(), true);
            add("comments", review_comments_schema(*max_comments), false);
        }
        Kind::PullRequest { .. } => {
            add("title", title(), true);
            add("body", body(), true);
        }
        Kind::Push { .. } => add("message", text("The commit's message."), true),
        Kind::Issue { choose, .. } => {
            add("title", title(), true);
            add("body", body(), true);
            if !choose.is_empty() {
                add("labels", labels_schema(choose), false);
            }
        }
        Kind::Labels { add: added, remove } => {
            if !added.is_empty() {
                add("add", labels_schema(added), false);
            }
            if !remove.is_empty() {
                add("remove", labels_schema(remove), false);
            }
        }
        Kind::Close {} => {
            add("reason", json!({ "type": "string", "enum": ["completed", "not_planned", "duplicate"] }), true);
        }
        Kind::Check { .. } => {
            add("conclusion", json!({ "type": "string", "enum": ["success", "failure", "neutral"] }), true);
            add("summary", body(), true);
        }
        Kind::Command { schema, .. } => add("data", schema.clone(), true),
    }
    if output.target == Some(Target::Any) {
        add("number", json!({ "type": "integer", "minimum": 1, "description": "The issue or pull request." }), true);
    }
    let key = format!(
        "Names this output, so that a later call with the same key replaces it. 1 to {MAX_KEY} of `A-Za-z0-9._/-`."
    );
    add("key", json!({ "type": "string", "description": key }), false);
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn labels_schema(labels: &[String]) -> Value {
    json!({ "type": "array", "items": { "type": "string", "enum": labels }, "uniqueItems": true })
}

fn review_comments_schema(most: u32) -> Value {
    let line = json!({ "type": "integer", "minimum": 1 });
    json!({
        "type": "array",
        "maxItems": most,
        "description": "Comments on lines that the pull request changes, or that are beside them in its diff.",
        "items": {
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": MAX_PATH_BYTES },
                "line": line,
                "start_line": { "type": "integer", "minimum": 1, "description": "The first line of several." },
                "side": { "type": "string", "enum": ["RIGHT", "LEFT"], "description": "LEFT for a line before the change. Default: RIGHT." },
                "body": { "type": "string", "minLength": 1, "description": "Markdown." },
            },
            "required": ["path", "line", "body"],
            "additionalProperties": false,
        },
    })
}

/// Checks what the schema can't say: texts, and numbers that depend on each other.
fn check_data(outputs: &Outputs, output: &Output, data: &Value) -> Result<(), String> {
    let texts = TextCheck { outputs, trigger: outputs.trigger.as_ref(), closes: output.kind.closes() };
    let field = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
    match &output.kind {
        Kind::Comment { .. } => texts.body("body", field("body")),
        Kind::PullRequest { title_prefix, .. } | Kind::Issue { title_prefix, .. } => {
            texts.title("title", title_prefix, field("title"))?;
            texts.body("body", field("body"))
        }
        Kind::Push { .. } => texts.message("message", field("message")),
        Kind::Check { .. } => texts.body("summary", field("summary")),
        Kind::Review { .. } => {
            texts.body("body", field("body"))?;
            let comments = data.get("comments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            comments.iter().enumerate().try_for_each(|(number, comment)| check_comment(&texts, number, comment))
        }
        Kind::Labels { .. } => {
            let count = |key: &str| data.get(key).and_then(Value::as_array).map_or(0, Vec::len);
            match count("add") + count("remove") {
                0 => Err("the call names no label: give `add` or `remove`".to_owned()),
                _ => Ok(()),
            }
        }
        // The command gets its data as JSON, and no forge shows it.
        Kind::Close {} | Kind::Command { .. } => Ok(()),
    }
}

fn check_comment(texts: &TextCheck<'_>, number: usize, comment: &Value) -> Result<(), String> {
    let place = format!("comments[{number}]");
    let integer = |key: &str| comment.get(key).and_then(Value::as_u64);
    if let (Some(first), Some(last)) = (integer("start_line"), integer("line"))
        && first >= last
    {
        return Err(format!("{place}: `start_line` ({first}) must be before `line` ({last})"));
    }
    let body = comment.get("body").and_then(Value::as_str).unwrap_or_default();
    texts.body(&format!("{place}.body"), body)
}

/// Checks the texts of one output.
struct TextCheck<'a> {
    outputs: &'a Outputs,
    trigger: Option<&'a Trigger>,
    closes: bool,
}

impl TextCheck<'_> {
    fn rules(&self) -> TextRules<'_> {
        let own = self.trigger.map(|trigger| OwnRepository {
            forge: trigger.forge,
            server: &trigger.server,
            repository: &trigger.repository,
        });
        TextRules {
            mentions: &self.outputs.rules.mentions,
            links: &self.outputs.rules.links,
            own,
            closes: self.trigger.and_then(|trigger| trigger.number).filter(|_| self.closes),
        }
    }

    fn body(&self, field: &str, text: &str) -> Result<(), String> {
        check_body(text, &self.rules()).map_err(|violation| format!("`{field}`: {violation}"))
    }

    fn message(&self, field: &str, text: &str) -> Result<(), String> {
        check_message(text, &self.rules()).map_err(|violation| format!("`{field}`: {violation}"))
    }

    fn title(&self, field: &str, prefix: &str, text: &str) -> Result<(), String> {
        check_title(text, prefix, &self.rules()).map_err(|violation| format!("`{field}`: {violation}"))
    }
}

#[cfg(test)]
mod tests {

    use super::super::{Forge, Rules, Subject};
    use super::*;

    #[test]
    fn a_number_is_whole_however_it_is_written() {
        assert_eq!([json!(3), json!(3.0), json!(3e0)].map(|number| whole_number(&number)), [Ok(3), Ok(3), Ok(3)]);
        for number in [json!(0.0), json!(-3.0), json!(1e300), json!(3.5), json!("3")] {
            assert!(whole_number(&number).is_err(), "{number}");
        }
    }

    #[test]
    fn every_text_is_checked_by_the_rules_of_its_use() {
        let trigger = Trigger {
            forge: Forge::Github,
            repository: "acme/site".to_owned(),
            server: "https://github.com".to_owned(),
            subject: Subject::Issue,
            number: Some(12),
            head: None,
            base: None,
        };
        let rules = Rules { mentions: vec!["octocat".to_owned()], links: Vec::new(), required: false };
        let outputs = Outputs { trigger: Some(trigger), rules, ..Outputs::default() };
        let issue = Kind::Issue { title_prefix: "fix: ".to_owned(), labels: Vec::new(), choose: Vec::new() };
        let review = Kind::Review { max_comments: 2, request_changes: false };
        for (kind, input, error) in [
            (Kind::Comment { update: false, closes: true }, json!({ "body": "Closes #12 for @octocat" }), ""),
            (
                Kind::Comment { update: false, closes: false },
                json!({ "body": "a\ncloses #12" }),
                "`body`: closing-keyword at line 2, column 1",
            ),
            (Kind::Comment { update: false, closes: true }, json!({ "body": "closes #13" }), "only #12 may be closed"),
            (
                issue.clone(),
                json!({ "title": "#12 crashes", "body": "a" }),
                "`title`: closing-keyword at line 1, column 1",
            ),
            (issue, json!({ "title": "a", "body": "a @b" }), "`body`: mention at line 1, column 3"),
            (
                review,
                json!({ "body": "a", "comments": [{ "path": "a", "line": 1, "body": "<b>" }] }),
                "`comments[0].body`: raw-html at line 1, column 1",
            ),
            (
                Kind::Check { check_name: "a".to_owned() },
                json!({ "conclusion": "success", "summary": "![](a)" }),
                "`summary`: image",
            ),
        ] {
            let output = Output { target: None, max: 1, on_checks_failed: false, kind };
            let checker = Checker::new(&output).unwrap();
            let checked = checker.check_input(&outputs, &output, &input.to_string());
            match checked {
                Ok(_) => assert_eq!(error, "", "{input}"),
                Err(message) => assert!(!error.is_empty() && message.contains(error), "{input}: {message}"),
            }
        }
    }
}

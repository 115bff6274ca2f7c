//! `skill`: returns the instructions of a skill. It isn't granted by an allowlist; every agent with skills has it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::input::{lenient_integer, parse, schema};
use super::tool::{CallFuture, MAX_RESULT_CHARS, Tool, ToolContext};
use crate::diagnostic::suggest_name;
use crate::message::ToolError;
use crate::text::pluralize;

/// The longest part of instructions that one call returns, in characters. The lines before it take some, too.
const MAX_PART_CHARS: usize = MAX_RESULT_CHARS - 10_000;

/// The `skill` tool of one agent.
#[derive(Debug)]
pub struct SkillTool {
    skills: Vec<SkillText>,
}

/// A skill, as the tool returns it.
#[derive(Debug, Clone)]
pub struct SkillText {
    /// Its name.
    pub name: String,
    /// The path of its folder from the workspace.
    pub folder: String,
    /// Its instructions.
    pub body: String,
    /// The tools that it names.
    pub allowed_tools: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillInput {
    /// The name of the skill.
    #[serde(alias = "skill", alias = "skill_name", alias = "command")]
    name: String,
    /// Which part of long instructions to return. Default: 1.
    #[serde(default, deserialize_with = "lenient_integer")]
    part: Option<u64>,
    /// What the skill is needed for.
    #[serde(default, alias = "arguments")]
    #[schemars(skip)]
    #[expect(dead_code, reason = "models add it out of habit")]
    args: Option<Value>,
}

impl SkillTool {
    /// The tool's name.
    pub const NAME: &str = "skill";

    /// Offers some skills.
    pub fn new(skills: Vec<SkillText>) -> Self {
        Self { skills }
    }

    fn find(&self, name: &str) -> Result<&SkillText, ToolError> {
        let name = name.trim().trim_start_matches('/');
        self.skills.iter().find(|skill| skill.name == name).ok_or_else(|| {
            let names = || self.skills.iter().map(|skill| skill.name.as_str());
            let near = suggest_name(name, names()).map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
            let shown: String = name.chars().take(100).collect();
            ToolError(format!(
                "there is no skill `{shown}`{near}; there are: {}",
                names().collect::<Vec<_>>().join(", ")
            ))
        })
    }
}

impl SkillText {
    fn render(&self, part: u64) -> Result<String, ToolError> {
        let Self { name, folder, body, allowed_tools } = self;
        let parts = parts(body);
        let count = parts.len();
        let number = usize::try_from(part).unwrap_or(usize::MAX);
        let Some(body) = number.checked_sub(1).and_then(|index| parts.get(index)) else {
            return Err(ToolError(format!("the skill `{name}` has {}", pluralize(count as u64, "part"))));
        };
        let mut text = format!(
            "The instructions of the skill `{name}`. Files that they name are in the folder `{folder}` of the workspace.\n"
        );
        if !allowed_tools.is_empty() {
            text += &format!(
                "They are written for these tools: {}. Use your own tools that do the same, and no others.\n",
                allowed_tools.join(", ")
            );
        }
        if count > 1 {
            text += &format!("This is part {number} of {count}; call `skill` with `part` for the others.\n");
        }
        Ok(text + "\n" + body)
    }
}

/// The parts of a text that fit into results, split at the ends of lines if possible.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(MAX_PART_CHARS) {
        let (part, _) = rest.split_at(rest[..end].rfind('\n').map_or(end, |line_end| line_end + 1));
        parts.push(part);
        rest = &rest[part.len()..];
    }
    if !rest.is_empty() || parts.is_empty() {
        parts.push(rest);
    }
    parts
}

impl Tool for SkillTool {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> String {
        "Returns the instructions of a skill. The skills and what each is for are listed at the end of the system prompt. Call \
         it before you begin work that a skill is for, and follow what it says."
            .to_owned()
    }

    fn input_schema(&self) -> Value {
        let mut schema = schema::<SkillInput>();
        schema["properties"]["name"]["enum"] = self.skills.iter().map(|skill| skill.name.clone()).collect();
        schema
    }

    fn reads_only(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, input: &'a RawValue, _: &'a ToolContext<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            let SkillInput { name, part, .. } = parse(input)?;
            self.find(&name)?.render(part.unwrap_or(1)).map(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::toolbox::tests::ToolHarness;

    #[tokio::test]
    async fn a_skill_is_returned_by_its_name() {
        let mut harness = ToolHarness::new(&[]);
        let skill = |name: &str, tools: &[&str]| SkillText {
            name: name.to_owned(),
            folder: format!("skills/{name}"),
            body: format!("Body of {name}.\n"),
            allowed_tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        };
        harness
            .toolbox
            .add(Box::new(SkillTool::new(vec![skill("notes", &[]), skill("review", &["Read", "Bash(git:*)"])])));
        let text = harness.ok("skill", r#"{"name": "notes"}"#).await;
        assert!(text.contains("folder `skills/notes`") && text.ends_with("\n\nBody of notes.\n"), "{text}");
        let text = harness.ok("skill", r#"{"skill": "/review", "args": "x"}"#).await;
        assert!(text.contains("written for these tools: Read, Bash(git:*)."), "{text}");
        let text = harness.refused("skill", r#"{"name": "note"}"#).await;
        assert_eq!(text, "there is no skill `note` (did you mean `notes`?); there are: notes, review");
        let schema = &harness.toolbox.specs()[0].input_schema;
        assert_eq!(schema["properties"]["name"]["enum"], serde_json::json!(["notes", "review"]));
        assert_eq!(schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), ["name", "part"]);
    }

    #[tokio::test]
    async fn long_instructions_are_returned_in_parts() {
        let mut harness = ToolHarness::new(&[]);
        let body: String = (0..10_000).map(|line| format!("line {line} ä\n")).collect();
        let skill =
            SkillText { name: "long".into(), folder: "long".into(), body: body.clone(), allowed_tools: Vec::new() };
        harness.toolbox.add(Box::new(SkillTool::new(vec![skill])));
        let mut read = String::new();
        for part in 1..=3 {
            let text = harness.ok("skill", &format!(r#"{{"name": "long", "part": "{part}"}}"#)).await;
            assert!(text.contains(&format!("This is part {part} of 3;")), "{text:.300}");
            read += text.split_once("\n\n").unwrap().1;
        }
        assert_eq!(read, body);
        for part in ["0", "4"] {
            let text = harness.refused("skill", &format!(r#"{{"name": "long", "part": {part}}}"#)).await;
            assert_eq!(text, "the skill `long` has 3 parts");
        }
    }

    #[test]
    fn a_long_line_is_split_between_characters() {
        let text = "ä".repeat(MAX_PART_CHARS * 2 + 1);
        let parts = parts(&text);
        assert_eq!(
            parts.iter().map(|part| part.chars().count()).collect::<Vec<_>>(),
            [MAX_PART_CHARS, MAX_PART_CHARS, 1]
        );
        assert_eq!(super::parts(""), [""]);
    }
}

//! The outputs of a job, as it declares them: what its agents may propose to do outside.

use std::fmt;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor, value::SeqAccessDeserializer};

use super::access::{ENV_FORM, ENV_PATTERN};
use super::{Duration, MAX_DURATION, Size};
use crate::outputs::KindName;
use crate::yaml::{Node, Spanned};

/// The form of an output's name, which is the name of a tool.
const OUTPUT_NAME_PATTERN: &str = "^[a-z][a-z0-9_]{0,47}$";
/// The same in words.
pub const OUTPUT_NAME_FORM: &str = "an output's name is 1 to 48 of `a-z`, `0-9` and `_`, and begins with a letter";
/// The key of `outputs` that holds rules for all of them.
pub const RULES_KEY: &str = "rules";
/// The tool with which an agent says that there is nothing to do.
pub const NOTHING_TO_DO: &str = "nothing_to_do";

/// The most outputs of a job.
pub const MAX_OUTPUTS: usize = 50;
/// The most outputs of one name that a run can propose.
pub const MAX_ENTRIES: u32 = 100;
/// The default of `max_comments`.
pub const REVIEW_COMMENTS: u32 = 20;
/// The greatest value of `max_comments`.
pub const MAX_REVIEW_COMMENTS: u32 = 100;
/// The greatest value of `max_files`.
pub const MAX_PATCH_FILES: u32 = 5_000;
/// The default of `max_files`.
pub const PATCH_FILES: u32 = 100;
/// The default of `max_bytes`, and its greatest value: legwork keeps no larger patch.
pub const PATCH_BYTES: u64 = 1 << 20;
/// The default timeout of a command, in seconds.
pub const COMMAND_SECONDS: u64 = 2 * 60;

/// Whether a name has the form of [`OUTPUT_NAME_PATTERN`].
pub fn is_output_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.len() <= 48 && name.chars().all(is_allowed)
}

/// What agents may propose to do outside. `legwork publish` applies it after the run, without a model.
#[derive(Debug, Clone, Default)]
pub struct JobOutputs {
    /// The outputs, by the names of their tools.
    pub entries: IndexMap<Spanned<String>, Spanned<JobOutput>>,
    /// What holds for all of them.
    pub rules: OutputRules,
}

/// One output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "output")]
pub struct JobOutput {
    /// What it is. Default: its name.
    pub kind: Option<Spanned<KindName>>,
    /// The issue or pull request that it is for: `trigger`, that of the event which started the run; `any`, where the model
    /// gives the number; a number; or `{{ inputs.NAME }}`, an integer.
    #[schemars(extend("default" = "trigger"))]
    pub target: Option<Spanned<OutputTarget>>,
    /// How many can be accepted in a run. For `labels`, how many labels are added and removed together.
    #[schemars(range(min = 1, max = MAX_ENTRIES), extend("default" = 1))]
    pub max: Option<Spanned<u32>>,
    /// The outcomes of the run with which it is published.
    #[serde(default)]
    #[schemars(extend("default" = ["completed"]))]
    pub on: Vec<Spanned<PublishedOutcome>>,
    /// `comment`, `review`, `labels`, `close`, `push`: whether a run that no issue or pull request has started does without it.
    /// Agents don't have its tool then.
    #[schemars(extend("default" = false))]
    pub optional: Option<Spanned<bool>>,
    /// `comment`, `pull_request`: whether it replaces that of earlier runs with the same key.
    pub update: Option<Spanned<bool>>,
    /// `comment`, `pull_request`: whether its text may close the trigger's issue, as in `Closes #12`.
    pub closes: Option<Spanned<bool>>,
    /// `review`: the most comments on lines.
    #[schemars(range(min = 1, max = MAX_REVIEW_COMMENTS), extend("default" = REVIEW_COMMENTS))]
    pub max_comments: Option<Spanned<u32>>,
    /// `review`: what it does. No review approves.
    #[schemars(extend("default" = "comment"))]
    pub event: Option<Spanned<ReviewEvent>>,
    /// `pull_request`, `issue`: what its title begins with.
    pub title_prefix: Option<Spanned<String>>,
    /// `pull_request`, `issue`: the labels that it always gets.
    pub labels: Option<Spanned<TextList>>,
    /// `issue`: the labels that the model can choose from.
    pub choose: Option<Spanned<TextList>>,
    /// `pull_request`: whether it is a draft.
    pub draft: Option<Spanned<bool>>,
    /// `pull_request`, `push`: globs of the files that may change. Default: all.
    pub paths: Option<Spanned<TextList>>,
    /// `pull_request`, `push`: the most files.
    #[schemars(range(min = 1, max = MAX_PATCH_FILES), extend("default" = PATCH_FILES))]
    pub max_files: Option<Spanned<u32>>,
    /// `pull_request`, `push`: the longest patch, at most `1MiB`.
    #[schemars(extend("default" = "1MiB"))]
    pub max_bytes: Option<Spanned<Size>>,
    /// `pull_request`, `push`: whether binary files may change. They count to `max_bytes` as the patch has them, packed.
    #[schemars(extend("default" = false))]
    pub binary: Option<Spanned<bool>>,
    /// `labels`: those that can be added.
    pub add: Option<Spanned<TextList>>,
    /// `labels`: those that can be removed.
    pub remove: Option<Spanned<TextList>>,
    /// `check`: its name on the forge. Default: the output's name.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the name is empty"))]
    pub name: Option<Spanned<String>>,
    /// `command`: the script that `publish` runs with `bash -e -o pipefail -c` in its checkout. It reads the data as JSON from
    /// standard input.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "the command is empty"))]
    pub run: Option<Spanned<String>>,
    /// `command`: JSON Schema of the data, or `{ file: PATH }`.
    #[schemars(extend("type" = ["object", "boolean"]))]
    pub schema: Option<Node>,
    /// `command`: the environment variables that it sees.
    #[serde(default)]
    #[schemars(extend("items" = { "type": "string", "pattern": ENV_PATTERN, "patternErrorMessage": ENV_FORM }))]
    pub env: Vec<Spanned<String>>,
    /// `command`: whether it may run again if it was killed in the middle.
    pub repeatable: Option<Spanned<bool>>,
    /// `command`: its time limit.
    #[schemars(extend("default" = "2m", "pattern" = Duration::pattern(MAX_DURATION)))]
    pub timeout: Option<Spanned<Duration>>,
}

/// What holds for all outputs of a job.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "output rules")]
pub struct OutputRules {
    /// The logins that texts may mention, without `@`. Default: none.
    pub mentions: Option<Spanned<TextList>>,
    /// The hosts that texts may link to, in addition to the forge's own repository. Default: none.
    pub links: Option<Spanned<TextList>>,
    /// Whether a run must propose something, or say with `nothing_to_do` why not.
    #[schemars(extend("default" = false))]
    pub required: Option<Spanned<bool>>,
}

/// What a review does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewEvent {
    /// It only comments.
    Comment,
    /// It requests changes.
    RequestChanges,
}

/// An outcome of a run with which an output can be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PublishedOutcome {
    /// All went well.
    Completed,
    /// The job's checks failed.
    ChecksFailed,
}

/// The issue or pull request that an output is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputTarget {
    /// A number.
    Number(u64),
    /// `trigger`, `any`, or a template that is one input.
    Text(String),
}

/// A list of texts, or a template that is one list input.
#[derive(Debug, Clone)]
pub enum TextList {
    /// The texts.
    Items(Vec<Spanned<String>>),
    /// `{{ inputs.NAME }}`.
    Template(String),
}

impl<'de> Deserialize<'de> for JobOutputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByName;
        impl<'de> Visitor<'de> for ByName {
            type Value = JobOutputs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of names to outputs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JobOutputs, A::Error> {
                let mut outputs = JobOutputs::default();
                while let Some(name) = map.next_key::<Spanned<String>>()? {
                    if name.value == RULES_KEY {
                        outputs.rules = map.next_value()?;
                    } else {
                        outputs.entries.insert(name, map.next_value()?);
                    }
                }
                Ok(outputs)
            }
        }
        deserializer.deserialize_map(ByName)
    }
}

impl JsonSchema for JobOutputs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Outputs".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (output, rules) = (generator.subschema_for::<JobOutput>(), generator.subschema_for::<OutputRules>());
        json_schema!({
            "type": "object",
            "properties": { RULES_KEY: rules },
            "additionalProperties": output,
            "maxProperties": MAX_OUTPUTS + 1,
            "propertyNames": {
                "title": "output", "pattern": OUTPUT_NAME_PATTERN, "patternErrorMessage": OUTPUT_NAME_FORM,
            },
        })
    }
}

impl<'de> Deserialize<'de> for OutputTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = OutputTarget;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`trigger`, `any`, a number, or `{{ inputs.NAME }}`")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<OutputTarget, E> {
                let positive = u64::try_from(number).ok().filter(|number| *number > 0);
                positive
                    .map(OutputTarget::Number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<OutputTarget, E> {
                Ok(OutputTarget::Text(text.to_owned()))
            }

            // The placeholder of a value that couldn't be read.
            fn visit_unit<E: de::Error>(self) -> Result<OutputTarget, E> {
                Ok(OutputTarget::Text("trigger".to_owned()))
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

impl JsonSchema for OutputTarget {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OutputTarget".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "minimum": 1,
            "pattern": r"^(trigger|any|\{\{.*\}\})$",
            "patternErrorMessage": "write `trigger`, `any`, a number, or `\"{{ inputs.NAME }}\"`",
        })
    }
}

impl<'de> Deserialize<'de> for TextList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrTemplate;
        impl<'de> Visitor<'de> for ListOrTemplate {
            type Value = TextList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts, or `{{ inputs.NAME }}` of a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<TextList, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(TextList::Items)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TextList, E> {
                Ok(TextList::Template(text.to_owned()))
            }

            // The placeholder of a value that couldn't be read.
            fn visit_unit<E: de::Error>(self) -> Result<TextList, E> {
                Ok(TextList::Items(Vec::new()))
            }
        }
        deserializer.deserialize_any(ListOrTemplate)
    }
}

impl JsonSchema for TextList {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TextList".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["array", "string"],
            "items": { "type": "string", "minLength": 1 },
            "pattern": r"^\{\{.*\}\}$",
            "patternErrorMessage": "write a list, or `\"{{ inputs.NAME }}\"` for one list input",
        })
    }
}

impl TextList {
    /// The template, if it is one.
    pub fn template(&self) -> Option<&str> {
        match self {
            Self::Items(_) => None,
            Self::Template(text) => Some(text),
        }
    }
}

impl JobOutput {
    /// What it is; `None` if its name isn't a kind, and it has no other.
    pub fn kind(&self, name: &str) -> Option<KindName> {
        self.kind.as_ref().map(|kind| kind.value).or_else(|| KindName::named(name))
    }
}

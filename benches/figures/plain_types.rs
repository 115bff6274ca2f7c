//! The types of the job file, in a program that only decodes them with yaml_serde, the successor of serde_yaml.
#![allow(dead_code, reason = "only the decoding of the fields is measured")]

use std::path::Path;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_yaml::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Job {
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    inputs: IndexMap<String, Input>,
    model: Model,
    parent: Agent,
    #[serde(default)]
    subagents: IndexMap<String, Agent>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    env: Vec<String>,
    network: Option<Network>,
    keep: Option<Keep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(rename = "type")]
    kind: InputType,
    description: Option<String>,
    default: Option<Value>,
    #[serde(rename = "enum")]
    choices: Option<Vec<String>>,
    #[serde(default)]
    untrusted: bool,
    #[serde(default)]
    secret: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum InputType {
    String,
    Integer,
    Number,
    Boolean,
    Path,
    List,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Model {
    Name(String),
    Options { name: String, thinking: Option<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    description: Option<String>,
    system: Option<Prompt>,
    prompt: Option<Prompt>,
    tools: Vec<Tool>,
    max_turns: Option<u32>,
    max_tokens: Option<u32>,
    model: Option<Model>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    File { file: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tool {
    Name(String),
    Options(IndexMap<String, Option<Bash>>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bash {
    allow: Option<Vec<String>>,
    timeout: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    cost_usd: Option<f64>,
    tokens: Option<u64>,
    wall_clock: Option<String>,
    tool_calls: Option<Count>,
    subagents: Option<Count>,
    parallel_subagents: Option<u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    At(u64),
    None(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Network {
    None,
    Open,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Keep {
    Always,
    OnFailure,
    Never,
}

/// Decodes every file of a folder into the types above, and returns the number of files that match.
pub(crate) fn jobs(folder: &Path) -> usize {
    texts(folder).filter(|text| serde_yaml::from_str::<Job>(text).is_ok()).count()
}

/// Decodes every file of a folder into untyped values, and returns the number of successes.
pub(crate) fn values(folder: &Path) -> usize {
    texts(folder).filter(|text| serde_yaml::from_str::<Value>(text).is_ok()).count()
}

/// The files of a folder, read one by one.
pub(crate) fn texts(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    entries.map(|path| std::fs::read_to_string(path).expect("a text"))
}

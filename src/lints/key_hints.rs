//! Hints for the YAML reader about the keys of a job file: the ranges of numbers, and where misplaced keys belong.

use crate::job::{MAX_CONTEXT_BYTES, MAX_PARALLEL_SUBAGENTS, MAX_TOKENS, MAX_TURNS};
use crate::text::truncate::ellipsize;
use crate::yaml::{ErrorDetail, FormatHints, Node, NodeKind};

use super::foreign_names::help_for_key;
use super::key_aliases::{KEY_ALIASES, fold_key, is_alias_of, keys_for_alias};
use super::ranges::{range_help, range_message};

/// The hints for job files.
pub(super) static JOB_HINTS: FormatHints = FormatHints { key_aliases: KEY_ALIASES, complete_error, is_misplaced };

const INPUT_TYPES: &[&str] = &["string", "integer", "number", "boolean", "path", "list"];

fn complete_error(node: &Node, error: &mut ErrorDetail) {
    match error.code {
        "unknown-key" => complete_unknown_key(node, error),
        "out-of-range" => complete_range(&node.path(), error),
        "wrong-type" => {
            let path = node.path();
            let key = match path[..] {
                [key] | ["parent", key] | ["subagents", _, key] => key,
                _ => "",
            };
            let is_window = key == "context" || is_window_alias(key);
            match node.kind() {
                NodeKind::String(_) if ["context", "skills"].contains(&key) => {
                    error.help = Some(format!("write a list: `{key}: [PATH]`"));
                }
                NodeKind::Integer(_) if is_window => error.help = Some(WINDOW_HELP.to_owned()),
                NodeKind::String(_) if matches!(path[..], ["mcp", _, "command"]) => {
                    error.help = Some(format!("write each word as an item: `{}`", server_command(node)));
                }
                NodeKind::String(_) if matches!(path[..], ["mcp", _]) => {
                    let form = match node.as_str() {
                        Some(url) if url.starts_with("http://") || url.starts_with("https://") => format!("url: {url}"),
                        _ => server_command(node),
                    };
                    error.help = Some(format!("write it in this form: `{}: {{ {form} }}`", path[1]));
                }
                NodeKind::Mapping if path == ["env"] => {
                    let names: Vec<Node> = node.entries().map(|(name, _)| name).take(MAX_ENTRIES).collect();
                    let names: Vec<&str> = names.iter().filter_map(Node::text).collect();
                    let names = ellipsize(&names.join(", "), 200);
                    error.help =
                        Some(format!("list the names, `env: [{names}]`: the values come from the environment"));
                }
                // A text may be meant as the only item of a list, which the help shows.
                NodeKind::String(_) if matches!(path[..], ["env"] | [.., "tools"]) => {}
                kind => {
                    if let Some((_, form)) = form_of(&path).filter(|(wanted, _)| kind != *wanted) {
                        error.help = Some(format!("write it in this form: `{form}`"));
                    }
                }
            }
            // A type instead of an input's declaration.
            if let (["inputs", name], Some(kind)) = (&node.path()[..], node.as_str())
                && INPUT_TYPES.contains(&kind)
            {
                error.help = Some(format!("write `{name}: {{ type: {kind} }}`"));
            }
        }
        _ => {}
    }
}

/// What a part of a job must be, a list or a mapping, and its form in one line.
fn form_of(path: &[&str]) -> Option<(NodeKind<'static>, &'static str)> {
    const SCHEMA: &str = "schema: { type: object, properties: { NAME: { type: string } } }";
    let mapping = |form| Some((NodeKind::Mapping, form));
    let list = |form| Some((NodeKind::List, form));
    match path {
        ["inputs"] => mapping("inputs: { NAME: { type: string } }"),
        ["inputs", _] => mapping("NAME: { type: string, default: VALUE }"),
        ["parent"] => mapping("parent: { prompt: TEXT, tools: [read_file] }"),
        ["subagents"] => mapping("subagents: { NAME: { description: TEXT, tools: [read_file] } }"),
        ["subagents", _] => mapping("NAME: { description: TEXT, tools: [read_file] }"),
        ["limits"] => mapping("limits: { cost_usd: 2, wall_clock: 20m }"),
        ["checks"] => list("checks: [{ name: TEXT, run: COMMAND }]"),
        ["checks", ""] => mapping("{ name: TEXT, run: COMMAND }"),
        ["before"] => list("before: [{ name: NAME, run: COMMAND }]"),
        ["state"] => mapping("state: { schema: { type: object }, initial: {} }"),
        ["before", ""] => mapping("{ name: NAME, run: COMMAND }"),
        ["result"] | ["subagents", _, "returns"] => mapping(SCHEMA),
        ["mcp"] => mapping("mcp: { NAME: { command: [PROGRAM, ARGUMENT] } }"),
        ["mcp", _] => mapping("NAME: { command: [PROGRAM, ARGUMENT] }"),
        ["env"] => list("env: [VARIABLE]"),
        ["parent" | "subagents", .., "tools"] => list("tools: [read_file, bash: { allow: [\"git diff *\"] }]"),
        ["parent" | "subagents", .., "tools", "", "bash"] => mapping("bash: { allow: [\"git diff *\"] }"),
        _ => None,
    }
}

/// A server's command as a list, from a text and from `args`, as other programs have it.
fn server_command(command: &Node) -> String {
    let args = command.parent().and_then(|server| server.get("args"));
    let args: Vec<Node> = args.iter().flat_map(Node::items).collect();
    let words = command.as_str().unwrap_or("PROGRAM").split_whitespace();
    let words: Vec<String> = words.chain(args.iter().filter_map(Node::text)).map(list_item).collect();
    format!("command: [{}]", words.join(", "))
}

/// A word as an item of a list in brackets: in quotes unless it is certainly plain.
fn list_item(word: &str) -> String {
    let is_plain = word.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '/' | '.' | '-'))
        && word.len() > 1
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./@=+~".contains(&byte));
    if is_plain { word.to_owned() } else { serde_json::Value::from(word).to_string() }
}

/// What to do about a key of a server that other programs have.
fn help_for_server_key(server: &Node, name: &str) -> Option<String> {
    match fold_key(name).as_str() {
        "args" | "arguments" => {
            let command = server
                .get("command")
                .map_or_else(|| "command: [PROGRAM, ARGUMENT]".to_owned(), |command| server_command(&command));
            Some(format!("the arguments are items of the command: `{command}`"))
        }
        "type" | "transport" => {
            Some("remove it: a server with `command` uses stdio, and one with `url` HTTP".to_owned())
        }
        "cwd" | "workingdirectory" => Some("remove it: a server starts in the workspace".to_owned()),
        "tools" | "allow" | "allowedtools" | "includetools" | "enabledtools" => {
            Some("an agent lists the tools that it gets: `tools: [{ mcp: SERVER, allow: [TOOL] }]`".to_owned())
        }
        "disabled" | "enabled" => Some("remove it: a server is started if an agent lists its tools".to_owned()),
        "httpurl" | "endpoint" | "uri" | "serverurl" => Some("its name here is `url`".to_owned()),
        _ => None,
    }
}

fn complete_range(path: &[&str], error: &mut ErrorDetail) {
    if let ["limits", "cost_usd"] = path {
        error.message = "`cost_usd` must be a finite number greater than 0".to_owned();
        error.help = Some("write US dollars, such as `2.00`, or `none` for no limit".to_owned());
        return;
    }
    let agent_key = match path {
        ["parent", rest @ ..] | ["subagents", _, rest @ ..] => rest,
        ["model", ..] => path,
        _ => &[],
    };
    let most = match (path, agent_key) {
        (_, ["max_turns"]) => ("max_turns", MAX_TURNS),
        (_, ["max_tokens"] | ["model", "max_tokens"]) => ("max_tokens", MAX_TOKENS),
        (["context_bytes"], _) => ("context_bytes", MAX_CONTEXT_BYTES),
        (["limits", "parallel_subagents"], _) => ("parallel_subagents", MAX_PARALLEL_SUBAGENTS),
        (["limits", key @ ("tokens" | "tool_calls" | "subagents")], _) => {
            error.message = format!("`{key}` must be a whole number of at least 1");
            error.help = Some("write a number of at least 1, or `none` for no limit".to_owned());
            return;
        }
        _ => return,
    };
    error.message = range_message(most.0, most.1);
    error.help = Some(range_help(most.1));
}

/// The mappings of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyLevel {
    Job,
    Parent,
    Subagent,
    Model,
    Limits,
    Input,
    /// A prompt that is a mapping: `{ file: PATH }`.
    PromptFile,
}

const JOB: &[&str] = &[
    "inputs",
    "subagents",
    "mcp",
    "context_bytes",
    "limits",
    "env",
    "network",
    "git",
    "protect",
    "allow_changes",
    "skip_if",
    "result",
    "compaction",
    "keep",
];
const AGENT: &[&str] = &["system", "prompt", "tools", "max_turns", "max_tokens"];
/// Keys that no help mentions.
const OTHERS: &[&str] =
    &["name", "description", "model", "parent", "before", "checks", "repairs", "returns", "file", "schema"];
/// The options of a model, each with an example.
const MODEL: &[(&str, &str)] = &[
    ("thinking", "low"),
    ("temperature", "0"),
    ("stop", "[END]"),
    ("max_tokens", "8000"),
    ("context", "200000"),
    ("tier", "flex"),
    ("fallback", "[openai/gpt-6]"),
];
const LIMITS: &[&str] = &["cost_usd", "tokens", "wall_clock", "tool_calls", "parallel_subagents"];

/// How many entries of a mapping are searched for misplaced keys.
const MAX_ENTRIES: usize = 200;

/// What to write instead of a context window outside of a model. The key `context` of jobs and agents is another one.
const WINDOW_HELP: &str =
    "the context window is an option of the model: `model: { name: PROVIDER/NAME, context: 200000 }`";

/// Whether a key of another format means the context window of a model.
fn is_window_alias(key: &str) -> bool {
    keys_for_alias(key).any(|meant| meant == "context")
}

/// Completes the error at an unknown key: says where the key belongs.
fn complete_unknown_key(key: &Node, error: &mut ErrorDetail) {
    let (Some(mapping), Some(name)) = (key.parent(), key.text()) else { return };
    if let ["mcp", _] = mapping.path()[..]
        && let Some(help) = help_for_server_key(&mapping, name)
    {
        error.help = Some(help);
        error.fix = None;
        return;
    }
    if let ["result"] | ["subagents", _, "returns"] = mapping.path()[..]
        && mapping.get("schema").is_none()
    {
        let form = format!("schema: {{ type: object, properties: {{ {name}: {{ type: string }} }} }}");
        error.help = Some(format!("the fields of the data are declared by a JSON Schema: `{form}`"));
        error.fix = None;
        return;
    }
    let Some(level) = level_of(&mapping) else { return };
    if level == KeyLevel::Model && mapping.get("name").is_none() && ["model", "id"].contains(&fold_key(name).as_str()) {
        let provider = mapping.get("provider").and_then(|provider| provider.as_str().map(ToOwned::to_owned));
        let provider = provider.unwrap_or_else(|| "PROVIDER".to_owned());
        let model =
            key.parent().and_then(|model| model.get(name)).and_then(|model| model.as_str().map(ToOwned::to_owned));
        let model = model.filter(|model| !model.contains('/')).unwrap_or_else(|| "NAME".to_owned());
        error.help = Some(format!("its name here is `name`: `name: {provider}/{model}`"));
        error.fix = None;
        return;
    }
    if follows_empty_block(&mapping, key) {
        error.help = Some("if it is a line of the text above it, indent it deeper than that text's key".to_owned());
        error.fix = None;
        return;
    }
    if level != KeyLevel::Model && is_window_alias(name) {
        error.help = Some(WINDOW_HELP.to_owned());
        error.fix = None;
        return;
    }
    let is_renamed = |fix: &String| fold_key(fix) != fold_key(name);
    if is_key(name) && error.fix.as_ref().is_some_and(is_renamed) {
        // It is right in another mapping, and no misspelling of the similar key in this one.
        error.fix = None;
    } else if error.fix.is_some() {
        return;
    }
    let option = keys_for_alias(name).find(|key| level == KeyLevel::Model && is_model_option(key));
    if let (Some(option), Some(help)) = (option, &mut error.help) {
        *help = format!("did you mean `{option}`? {help}");
    } else if let Some((_, _, help)) = correct_level(level, name) {
        error.help = Some(help);
    } else if let Some(help) = help_for_key(name) {
        error.help = Some(help.to_owned());
    }
}

/// Whether a key that a mapping lacks is written in another mapping, where it is reported as unknown.
fn is_misplaced(mapping: &Node, missing: &str) -> bool {
    let Some(level) = level_of(mapping) else { return false };
    // The keys of a mapping that belong to another level.
    let moved = |mapping: Option<Node>| -> Vec<(&'static str, KeyLevel)> {
        let Some((mapping, level)) = mapping.and_then(|mapping| Some((mapping.clone(), level_of(&mapping)?))) else {
            return Vec::new();
        };
        let names = mapping.entries().take(MAX_ENTRIES);
        names.filter_map(|(key, _)| correct_level(level, key.text()?)).map(|(key, home, _)| (key, home)).collect()
    };
    let root = || std::iter::successors(Some(mapping.clone()), Node::parent).last();
    let in_root = |name: &str| root().and_then(|root| value_of_key(&root, name));
    let in_prompts = || ["system", "prompt"].into_iter().flat_map(|name| moved(mapping.get(name)));
    match level {
        KeyLevel::Job => {
            let inner = ["parent", "limits"].into_iter().flat_map(|name| moved(in_root(name)));
            let agents = in_root("subagents").into_iter().flat_map(|all| {
                all.entries().take(MAX_ENTRIES).flat_map(|(_, agent)| moved(Some(agent))).collect::<Vec<_>>()
            });
            inner.chain(agents).any(|(key, home)| home == KeyLevel::Job && key == missing)
                || (missing == "parent" && moved(root()).iter().any(|(_, home)| *home == KeyLevel::Parent))
        }
        KeyLevel::Parent => {
            moved(root()).into_iter().any(|(key, home)| home == KeyLevel::Parent && key == missing)
                || in_prompts().any(|(key, _)| key == missing)
        }
        KeyLevel::Subagent => in_prompts().any(|(key, _)| key == missing),
        KeyLevel::PromptFile => missing == "file" && !moved(Some(mapping.clone())).is_empty(),
        _ => false,
    }
}

/// The level of a mapping of a job file.
fn level_of(mapping: &Node) -> Option<KeyLevel> {
    let is = |word: &str, key: &str| word == key || is_alias_of(word, key);
    Some(match mapping.path()[..] {
        [] => KeyLevel::Job,
        [name] if is(name, "parent") => KeyLevel::Parent,
        [name] if is(name, "limits") => KeyLevel::Limits,
        [name] if is(name, "model") => KeyLevel::Model,
        [name, "system" | "prompt"] if is(name, "parent") => KeyLevel::PromptFile,
        [name, _] if is(name, "subagents") => KeyLevel::Subagent,
        [name, _] if is(name, "inputs") => KeyLevel::Input,
        [name, _, model] if is(name, "subagents") && is(model, "model") => KeyLevel::Model,
        [name, _, text] if is(name, "subagents") && is(text, "system") => KeyLevel::PromptFile,
        _ => return None,
    })
}

fn is_model_option(key: &str) -> bool {
    MODEL.iter().any(|(option, _)| *option == key)
}

/// Whether a job has this key at any level.
fn is_key(name: &str) -> bool {
    let known = JOB.iter().chain(AGENT).chain(LIMITS).chain(OTHERS).copied();
    known.chain(MODEL.iter().map(|(key, _)| *key)).any(|key| fold_key(key) == fold_key(name))
}

/// The intended key, the level that it belongs to, and the help that explains this.
fn correct_level(level: KeyLevel, name: &str) -> Option<(&'static str, KeyLevel, String)> {
    let known = JOB.iter().chain(AGENT).chain(LIMITS).chain(&["model", "parent"]).copied();
    let known = known.chain(MODEL.iter().map(|(key, _)| *key));
    let folded = fold_key(name);
    // A folded key is never longer than the key.
    let itself: Vec<&str> = known.filter(|key| key.len() >= folded.len() && fold_key(key) == folded).collect();
    let mut meant = itself.into_iter().chain(keys_for_alias(name));
    meant.find_map(|key| {
        let is = |keys: &[&str]| keys.contains(&key);
        let is_same_word = fold_key(key) == fold_key(name);
        let called = if is_same_word { format!("`{key}`") } else { format!("its name here is `{key}`, which") };
        let option = MODEL.iter().find(|(option, _)| *option == key).map(|(_, example)| {
            let is_above = matches!(level, KeyLevel::Parent | KeyLevel::Limits);
            let whose = if is_above { ", at the top level" } else { "" };
            format!("is an option of the model{whose}: `model: {{ name: PROVIDER/NAME, {key}: {example} }}`")
        });
        let (home, rest) = match level {
            KeyLevel::Job if is(AGENT) => (KeyLevel::Parent, "belongs under `parent`"),
            KeyLevel::Job | KeyLevel::Parent | KeyLevel::Subagent if is(LIMITS) => {
                (KeyLevel::Limits, "belongs under `limits`, and applies to the whole run")
            }
            KeyLevel::Limits if is(&["max_turns", "max_tokens"]) => {
                (KeyLevel::Subagent, "belongs to each agent: under `parent`, or under a subagent")
            }
            KeyLevel::Job | KeyLevel::Parent | KeyLevel::Subagent | KeyLevel::Limits if option.is_some() => {
                (KeyLevel::Model, option.as_deref().unwrap_or_default())
            }
            KeyLevel::Limits if is(&["parent"]) => {
                (KeyLevel::Job, "is one level too deep: it belongs at the top level")
            }
            KeyLevel::Parent if is(&["model"]) => {
                (KeyLevel::Job, "belongs at the top level: the parent uses the job's model")
            }
            KeyLevel::Subagent if is(&["prompt"]) => {
                (KeyLevel::Subagent, "comes with each call of `task`; put what applies to all calls into `system`")
            }
            KeyLevel::PromptFile if is(AGENT) => {
                (KeyLevel::Parent, "is one level too deep: indent it like the key of this mapping")
            }
            KeyLevel::Model if is(AGENT) => {
                (KeyLevel::Subagent, "belongs to each agent: under `parent`, or under a subagent")
            }
            KeyLevel::Model if is(LIMITS) => (KeyLevel::Limits, "belongs under `limits`, and applies to the whole run"),
            KeyLevel::Parent | KeyLevel::Subagent | KeyLevel::Limits if is(JOB) => {
                (KeyLevel::Job, "belongs at the top level")
            }
            _ => return None,
        };
        Some((key, home, format!("{called} {rest}")))
    })
}

/// Whether a key of an agent follows an empty block text.
fn follows_empty_block(mapping: &Node, key: &Node) -> bool {
    if !matches!(level_of(mapping), Some(KeyLevel::Parent | KeyLevel::Subagent)) {
        return false;
    }
    let before = mapping.entries().take_while(|(other, _)| other.place().range != key.place().range).last();
    before.is_some_and(|(_, text)| text.is_block() && text.text().is_some_and(|text| text.trim().is_empty()))
}

/// The value of a key, or of its first alias.
fn value_of_key(root: &Node, name: &str) -> Option<Node> {
    let alias = || root.entries().find(|(key, _)| key.text().is_some_and(|key| is_alias_of(key, name)));
    root.get(name).or_else(|| alias().map(|(_, value)| value))
}

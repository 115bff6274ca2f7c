//! Calls that a model wrote as text. Each family of models has a notation for calls, which its server must parse. If the
//! server doesn't, the notation is the text of the reply, and no tool was called.

use serde_json::{Map, Value};

/// What servers leave in the text before and after calls, or lists of them. The second is empty where there is none, and may
/// be missing at the end of a reply.
const MARKUP: &[(&str, &str)] = &[
    // Hermes, Qwen, GLM, and most models without a notation of their own.
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<function_call>", "</function_call>"),
    ("<function_calls>", "</function_calls>"),
    // Llama and Qwen-Coder.
    ("<function=", "</function>"),
    ("<|python_tag|>", "<|eom_id|>"),
    ("<|python_start|>", "<|python_end|>"),
    // Mistral.
    ("[TOOL_CALLS]", ""),
    // DeepSeek.
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    ("function<｜tool▁sep｜>", ""),
    ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    ("<｜DSML｜invoke name=\"", "</｜DSML｜invoke>"),
    // Claude and MiniMax.
    ("<invoke name=\"", "</invoke>"),
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    // Kimi.
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
    ("functions.", ""),
    // gpt-oss.
    ("<|start|>assistant<|channel|>commentary to=functions.", "<|call|>"),
    ("<|channel|>commentary to=functions.", "<|call|>"),
    // Granite and Phi.
    ("<|tool_call|>", "<|/tool_call|>"),
    ("functools", ""),
    // Command, Gemma, InternLM, LFM, Nemotron, Seed.
    ("<|START_ACTION|>", "<|END_ACTION|>"),
    ("<start_function_call>call:", "<end_function_call>"),
    ("<|tool_call>call:", "<tool_call|>"),
    ("<|action_start|><|plugin|>", "<|action_end|>"),
    ("<|tool_call_start|>", "<|tool_call_end|>"),
    ("<TOOLCALL>", "</TOOLCALL>"),
    ("<seed:tool_call>", "</seed:tool_call>"),
];

/// How deep markup is nested.
const MAX_DEPTH: usize = 4;
/// How many lines of a text are tried as the start of calls.
const MAX_STARTS: usize = 16;

/// The tool that a text calls, if the text is nothing but calls of tools that `has_tool` knows, or ends with them. An answer
/// that contains such a notation elsewhere, or shows it in a code block, is no call.
pub(super) fn called_tool(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    called_in(text, has_tool, 0).or_else(|| called_at_end(text, has_tool))
}

/// The tool that a text calls after what it says: with markup, from the start of a line to the end of the text.
fn called_at_end(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    let (mut at, mut is_code) = (0, false);
    let mut starts = Vec::new();
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches(' ');
        // Four spaces make a code block, too.
        let is_indented = line.len() - content.len() >= 4;
        if content.starts_with("```") || content.starts_with("~~~") {
            is_code = !is_code;
        } else if !is_code && !is_indented && starts_with_markup(content) {
            starts.push(at);
        }
        at += line.len();
    }
    starts.into_iter().take(MAX_STARTS).find_map(|at| called_in(&text[at..], has_tool, 0))
}

/// True for markup that is no word: prose may well mention `functions.read_file` at the start of a line.
fn starts_with_markup(line: &str) -> bool {
    line.starts_with(['<', '[']) && MARKUP.iter().any(|(open, _)| line.starts_with(open))
}

fn called_in(text: &str, has_tool: &dyn Fn(&str) -> bool, depth: usize) -> Option<String> {
    let mut first = None;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let markup = MARKUP.iter().filter(|_| depth < MAX_DEPTH);
        let opened = markup.filter_map(|(open, close)| Some((rest.strip_prefix(open)?, close))).next();
        let tool = match opened {
            Some((calls, close)) => {
                let closed = calls.split_once(close).filter(|_| !close.is_empty());
                let (calls, after) = closed.unwrap_or((calls, ""));
                rest = after.trim();
                called_in(calls, has_tool, depth + 1)?
            }
            None => plain_call(std::mem::take(&mut rest), has_tool, depth > 0)?,
        };
        first.get_or_insert(tool);
    }
    first
}

/// The first tool that a text without markup calls.
fn plain_call(text: &str, has_tool: &dyn Fn(&str) -> bool, is_marked: bool) -> Option<String> {
    // Llama's `[read_file(path="a")]` loses its markup as special tokens.
    let is_marked = is_marked || text.starts_with('[') && text.ends_with(")]");
    let by_name = if is_marked { named_call(text) } else { None };
    by_name.filter(|name| has_tool(name)).map(str::to_owned).or_else(|| json_calls(text, has_tool))
}

/// The name at the start of a call that isn't JSON, such as `read_file{"path": "a"}` and `read_file(path="a")`.
fn named_call(text: &str) -> Option<&str> {
    let text = text.strip_prefix('[').unwrap_or(text);
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let (name, rest) = text.split_at(text.find(|letter| !is_name(letter)).unwrap_or(text.len()));
    let is_call = |rest: &str| {
        rest.starts_with(['{', '(', '[', '<', '>', '"', ':', '`']) && rest.ends_with(['}', ')', ']', '>', '`'])
    };
    let rest = rest.trim();
    (!name.is_empty() && (rest.is_empty() || is_call(rest))).then_some(name)
}

/// The first tool that is called by JSON: `{"name": ..., "arguments": {...}}`, one after the other or in a list.
fn json_calls(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let values: Vec<Value> = serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()?;
    let calls = values.iter().flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    let names: Vec<&str> = calls.map(|call| call_name(call.as_object()?)).collect::<Option<_>>()?;
    names.iter().all(|name| has_tool(name)).then(|| names.first().map(|name| (*name).to_owned()))?
}

fn call_name(call: &Map<String, Value>) -> Option<&str> {
    let call = call.get("function").and_then(Value::as_object).unwrap_or(call);
    let input = ["arguments", "parameters"].iter().find_map(|name| call.get(*name))?;
    let name = ["name", "tool_name"].iter().find_map(|name| call.get(*name))?.as_str()?;
    (input.is_object() || input.is_string()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(text: &str) -> Option<String> {
        called_tool(text, &|name| ["read_file", "bash", "todo"].contains(&name))
    }

    #[test]
    fn a_call_is_recognized_in_each_notation() {
        for text in [
            "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>",
            "<tool_call>{\"name\": \"read_file\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"bash\", \
             \"arguments\": {\"command\": \"ls\"}}</tool_call>",
            "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}",
            "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
            "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
            "<function=read_file>{\"path\": \"a\"}</function>",
            "[TOOL_CALLS][{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}]",
            "[TOOL_CALLS] [{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}, \"id\": \"VvvODy9mT\"}]",
            "[TOOL_CALLS]read_file{\"path\": \"a\"}",
            "[TOOL_CALLS]read_file[CALL_ID]a1b2c3d4e[ARGS]{\"path\": \"a\"}",
            "<|python_tag|>{\"name\": \"read_file\", \"parameters\": {\"path\": \"a\"}}",
            "{\"name\": \"read_file\", \"parameters\": {\"path\": \"a\"}}",
            "{\"type\": \"function\", \"function\": {\"name\": \"read_file\", \"arguments\": \"{}\"}}",
            "[{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}]",
            "<|python_start|>[read_file(path=\"a\")]<|python_end|>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file\n```json\n{\"path\": \"a\"}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{\"path\": \"a\"}<｜tool▁call▁end｜>\
             <｜tool▁calls▁end｜>",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"read_file\">\n<｜DSML｜parameter name=\"path\" \
             string=\"true\">a</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            "<function_calls>\n<invoke name=\"read_file\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n\
             </function_calls>",
            "<minimax:tool_call>\n<invoke name=\"read_file\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n\
             </minimax:tool_call>",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0<|tool_call_argument_begin|>\
             {\"path\": \"a\"}<|tool_call_end|><|tool_calls_section_end|>",
            "<|tool_call|>[{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}]<|/tool_call|>",
            "[read_file(path=\"a\")]",
            "<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{\"path\": \"a\"}<|call|>",
            "<|tool_call>call:read_file{path:<|\"|>a<|\"|>}<tool_call|>",
            "functools[{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}]",
            "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"read_file\", \"parameters\": {}}]<|END_ACTION|>",
        ] {
            assert_eq!(called(text).as_deref(), Some("read_file"), "{text}");
        }
        assert_eq!(called("<tool_call>todo</tool_call>").as_deref(), Some("todo"));
    }

    #[test]
    fn calls_after_what_the_model_says_are_recognized() {
        let call = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
        for text in [
            &format!("I'll read it.\n\n{call}"),
            &format!("I'll read both.\n{call}\n{call}\n"),
            &format!("```\nls\n```\nI'll read it.\n  {call}"),
            "I'll read it.\n<function=read_file>\n<parameter=path>\na\n</parameter>\n</function>",
            "I'll read it.\n[TOOL_CALLS]read_file{\"path\": \"a\"}",
        ] {
            assert_eq!(called(text).as_deref(), Some("read_file"), "{text}");
        }
        for text in [
            &format!("It writes:\n```\n{call}\n```"),
            &format!("It writes:\n```\n{call}"),
            &format!("It writes:\n\n    {call}"),
            &format!("It writes:\n{call}\nand waits."),
            "I use\nfunctions.read_file",
            "I use\n[read_file(path=\"a\")]",
        ] {
            assert_eq!(called(text), None, "{text}");
        }
        let calls = format!("Many:\n{}", format!("{call}\n").repeat(20_000));
        assert_eq!(called(&format!("{calls}end")), None, "without a quadratic search");
    }

    #[test]
    fn an_answer_that_mentions_a_call_is_no_call() {
        let call = "<tool_call>{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}</tool_call>";
        for text in [
            &format!("Hermes writes {call}."),
            &format!("{call} is what Hermes writes."),
            &format!("{call} and {call}"),
            &format!("```\n{call}\n```"),
            &format!("`{call}`"),
            "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
            "{\"name\": \"read_file\", \"arguments\": 7}",
            "{\"name\": \"read_file\", \"version\": {}}",
            "{\"name\": \"read_file\", \"arguments\": {}} is a call",
            "[TOOL_CALLS]read_file is how Mistral begins",
            "<tool_call>read_file reads a file</tool_call>",
            "read_file",
            "read_file(path=\"a\")",
            "[the list](read_file)",
            "bash{}",
            "<tool_call>",
            "",
        ] {
            assert_eq!(called(text), None, "{text}");
        }
        assert_eq!(called(&"<tool_call>".repeat(100_000)), None);
        assert_eq!(called(&call.repeat(20_000)).as_deref(), Some("read_file"), "many calls");
    }
}

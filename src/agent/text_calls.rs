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
    ("<|start|>assistant to=functions.", "<|call|>"),
    ("assistantcommentary to=functions.", ""),
    ("commentary to=functions.", ""),
    ("to=functions.", ""),
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
    ("<tool_use>", "</tool_use>"),
    ("<tools>", "</tools>"),
    ("<tool>", "</tool>"),
    ("<tool_code>", "</tool_code>"),
    ("<seed:tool_call>", "</seed:tool_call>"),
];

/// How a note about such a call begins.
const NOTE: &str = "No tool was called: ";

/// The languages of a code block that is a call if it is all of a reply.
const CALL_LANGUAGES: [&str; 7] =
    ["tool_call", "tool_calls", "tool_code", "tool_use", "function_call", "function", "json"];

/// How deep markup is nested.
const MAX_DEPTH: usize = 4;
/// How many lines of a text are tried as the start of calls.
const MAX_STARTS: usize = 16;

/// What the model reads about a call that it wrote as text.
pub(super) fn note(tool: &str) -> String {
    format!(
        "{NOTE}your last reply has a call of `{tool}` as text, and a text is never run. Make the call as a tool call, in the \
         form that you were given for tools. If you meant no call, give your answer again without that notation."
    )
}

/// Whether a note is one about a call as text.
pub(super) fn is_note(text: &str) -> bool {
    text.starts_with(NOTE)
}

/// The tool that a text calls, if the text is nothing but calls of tools that `has_tool` knows, or ends with them. An answer
/// that contains such a notation elsewhere, or shows it in a code block, is no call.
pub(super) fn called_tool(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    let whole = || called_in(text, has_tool, 0).or_else(|| element_call(text.trim(), has_tool));
    let others = || react_call(text, has_tool).or_else(|| called_at_end(text, has_tool));
    whole().or_else(|| fenced_call(text.trim(), has_tool)).or_else(others)
}

/// The call of a text that is one code block in a language for calls.
fn fenced_call(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    let (language, content) = text.strip_prefix("```")?.split_once('\n')?;
    let content = content.trim_end().strip_suffix("```")?.trim();
    let language = language.trim();
    if content.contains("```") || !CALL_LANGUAGES.contains(&language) {
        return None;
    }
    let is_marked = language != "json";
    let inner = content.strip_prefix("print(").and_then(|call| call.strip_suffix(')')).filter(|_| is_marked);
    let inner = inner.unwrap_or(content);
    let by_name = if is_marked { named_call(inner) } else { None };
    by_name.filter(|name| has_tool(name)).map(str::to_owned).or_else(|| json_calls(inner, has_tool))
}

/// The call of a text that is one element with the name of a tool, as Cline writes it: `<read_file><path>a</path></read_file>`.
fn element_call(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    let (name, rest) = text.strip_prefix('<')?.split_once('>')?;
    let inside = rest.strip_suffix(&format!("</{name}>"))?.trim();
    let is_input = inside.starts_with(['<', '{']) && inside.ends_with(['>', '}']);
    (has_tool(name) && is_input).then(|| name.to_owned())
}

/// The call at the end of a text in the notation of ReAct: a line `Action: TOOL` and one with `Action Input: {...}`.
fn react_call(text: &str, has_tool: &dyn Fn(&str) -> bool) -> Option<String> {
    let start = text.rfind("Action Input:").filter(|at| text[..*at].ends_with('\n'))?;
    let input = text[start..].strip_prefix("Action Input:")?.trim();
    let action = text[..start].trim_end().rsplit('\n').next()?.trim();
    let name = action.strip_prefix("Action:")?.trim().trim_matches('`');
    let is_input = input.starts_with('{') && input.ends_with('}');
    (has_tool(name) && is_input && text[..start].matches("```").count().is_multiple_of(2)).then(|| name.to_owned())
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
    // gpt-oss writes the kind of the input after the name.
    let rest = rest.trim();
    let rest = rest.strip_prefix("json").unwrap_or(rest).trim();
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
    // The call may be the only field, or the first item of the only field: `{"tool_calls": [{...}]}`.
    let within = ["function", "function_call", "functionCall", "tool_call", "tool_calls", "tool_uses"];
    let inner = within.iter().find_map(|name| match call.get(*name)? {
        Value::Array(calls) => calls.first()?.as_object(),
        inner => inner.as_object(),
    });
    let call = inner.unwrap_or(call);
    let call = call.get("function").and_then(Value::as_object).unwrap_or(call);
    let inputs = ["arguments", "parameters", "args", "input", "tool_input", "action_input"];
    let input = inputs.iter().find_map(|name| call.get(*name))?;
    let names = ["name", "tool_name", "function", "tool", "action", "recipient_name"];
    let name = names.iter().find_map(|name| call.get(*name)?.as_str())?;
    (input.is_object() || input.is_string()).then(|| name.strip_prefix("functions.").unwrap_or(name))
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
        for text in [
            "<read_file>\n<path>a</path>\n</read_file>",
            "I look at it.\n\nThought: it is short.\nAction: read_file\nAction Input: {\"path\": \"a\"}",
            "```tool_code\nprint(read_file(path=\"a\"))\n```",
            "```json\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n```",
            "```tool_call\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n```",
            "{\"tool\": \"read_file\", \"input\": {\"path\": \"a\"}}",
            "{\"action\": \"read_file\", \"action_input\": {\"path\": \"a\"}}",
            "{\"type\": \"tool_use\", \"name\": \"read_file\", \"input\": {}}",
            "{\"functionCall\": {\"name\": \"read_file\", \"args\": {}}}",
            "{\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"read_file\", \"arguments\": \"{}\"}}]}",
            "{\"tool_uses\": [{\"recipient_name\": \"functions.read_file\", \"parameters\": {}}]}",
            "{\"function\": \"read_file\", \"arguments\": {}}",
            "<tool_use>{\"name\": \"read_file\", \"input\": {}}</tool_use>",
            "commentary to=functions.read_file json{\"path\": \"a\"}",
        ] {
            assert_eq!(called(text).as_deref(), Some("read_file"), "{text}");
        }
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
            "<read_file> reads a file.</read_file>",
            "<unknown><path>a</path></unknown>",
            "Action: read_file",
            "Write:\n```\nAction: read_file\nAction Input: {}\n```\nand so on.",
            "```json\n{\"name\": \"read_file\", \"version\": {}}\n```",
            "```python\nread_file(path=\"a\")\n```",
            "It calls:\n```tool_code\nread_file(path=\"a\")\n```",
            "{\"tool\": \"unknown\", \"input\": {}}",
        ] {
            assert_eq!(called(text), None, "{text}");
        }
        assert_eq!(called(&"<tool_call>".repeat(100_000)), None);
        assert_eq!(called(&call.repeat(20_000)).as_deref(), Some("read_file"), "many calls");
    }
}

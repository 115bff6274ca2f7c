//! Valid jobs, generated from the grammar and written in all styles of YAML.

use serde_json::{Map, Value, json};

/// Decisions, read from bytes. When the bytes run out, the first option is chosen.
pub(crate) struct Choices<'a>(pub(crate) std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % end
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.below(of.len())]
    }

    fn word<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    /// Some of the items, in order.
    fn pick_some<'t>(&mut self, of: &[&'t str]) -> Vec<&'t str> {
        of.iter().copied().filter(|_| self.flip()).collect()
    }
}

const MODELS: &[&str] = &["anthropic/claude-sonnet-4-5", "anthropic/claude-haiku-4-5", "replay/a b.script.yaml"];
const TOOLS: &[&str] = &["read_file", "glob", "grep", "write_file", "edit_file", "todo"];
const NAMES: &[&str] = &["a", "topic", "max_lines", "_x", "no", "inputs", "null", "date"];
const LINES: &[&str] = &[
    "Look at it.",
    "über 😀 e\u{301}",
    "a: b # c",
    "- item",
    "'one' \"two\" \\three",
    "two  blanks, and a tab\there",
    "{ brace } [bracket]",
    "100 % & *all* !",
    "",
    "  indented",
    "~",
    "1_000",
    "{# a comment #}",
    "{% raw %}{{ x }}{% endraw %}",
    "{{ workspace }} of {{ job.name }}",
];

const COMMANDS: &[&str] = &[
    "true",
    "echo 'it is' \"$HOME\" # don't\ntest -d \"$PWD\"",
    "grep -q '{{.Name}}' <<'END'\n'\nEND\n",
    "x=$LEGWORK_RUN_ID; [ \"$x\" = 'a b' ] || echo $((1 + 2)) ${x%.*} ${#x} {{}}",
];

/// Generates a job.
pub(crate) fn job(dice: &mut Choices<'_>) -> Value {
    let mut job = Map::new();
    let inputs = inputs(dice);
    let subagents: Vec<&str> = dice.pick_some(&["explorer", "a-1", "0"]);
    if dice.flip() {
        job.insert("name".into(), json!(dice.pick(&["x", "my-job", "1"])));
    }
    job.insert("model".into(), model(dice));
    if dice.flip() {
        job.insert("description".into(), json!(plain_text(dice)));
    }
    let mut parent = agent(dice, &inputs, !subagents.is_empty());
    parent.insert("prompt".into(), json!(format!("Go.\n{}", text(dice, &inputs))));
    job.insert("parent".into(), parent.into());
    if !inputs.is_empty() {
        job.insert("inputs".into(), inputs.clone().into());
    }
    if !subagents.is_empty() {
        let mut all = Map::new();
        for name in subagents {
            let mut subagent = agent(dice, &inputs, false);
            subagent.insert("description".into(), json!(format!("Reads. {}", plain_text(dice))));
            if dice.flip() {
                subagent.insert("model".into(), model(dice));
            }
            all.insert(name.into(), subagent.into());
        }
        job.insert("subagents".into(), all.into());
    }
    if dice.flip() {
        let limits = json!({
            "wall_clock": dice.pick(&["20m", "1h30m", "none", "90s"]),
            "tokens": dice.pick(&[1_u64, 2_000_000, 9_007_199_254_740_993]),
            "tool_calls": dice.pick(&[json!(500), json!("none")]),
            "subagents": dice.pick(&[json!("none"), json!(1)]),
            "parallel_subagents": dice.pick(&[1, 1000]),
        });
        job.insert("limits".into(), limits);
    }
    let env = dice.pick_some(&["CARGO_HOME", "LANG", "_A1"]);
    if !env.is_empty() {
        job.insert("env".into(), json!(env));
    }
    if dice.flip() {
        job.insert("network".into(), json!(dice.pick(&["none", "open"])));
        job.insert("compaction".into(), json!("results"));
        job.insert("keep".into(), json!(dice.pick(&["always", "on_failure", "never"])));
    }
    if dice.flip() {
        let checks: Vec<Value> = (0..=dice.below(3)).map(|number| check(dice, number)).collect();
        job.insert("checks".into(), checks.into());
        job.insert("repairs".into(), json!(dice.pick(&[0, 1, 100])));
    }
    job.into()
}

fn check(dice: &mut Choices<'_>, number: usize) -> Value {
    let mut check =
        json!({ "name": format!("{number} {}", dice.word(&["é: #", "a", "'"])), "run": dice.pick(COMMANDS) });
    if dice.flip() {
        check["timeout"] = json!(dice.pick(&["1s", "720h"]));
    }
    if dice.flip() {
        check["when"] =
            json!(dice.pick(&["true", " False\n", "{{ job.name == 'x' }}", "{{ workspace is endingwith('/x') }}"]));
    }
    check
}

fn model(dice: &mut Choices<'_>) -> Value {
    match dice.below(4) {
        0 => json!({ "name": MODELS[0], "thinking": dice.pick(&["off", "low", "medium", "high"]) }),
        _ => json!(dice.pick(MODELS)),
    }
}

fn inputs(dice: &mut Choices<'_>) -> Map<String, Value> {
    let mut inputs = Map::new();
    for name in dice.pick_some(NAMES) {
        let mut input = match dice.below(7) {
            0 => json!({ "type": "string", "default": plain_text(dice) }),
            1 => json!({ "type": "integer", "default": dice.pick(&[0, -7, i64::MAX]) }),
            2 => json!({ "type": "number", "default": dice.pick(&[0.5, -1e-9, 1e300]) }),
            3 => json!({ "type": "boolean", "default": dice.flip() }),
            4 => json!({ "type": "path", "default": dice.pick(&["src", ".", "a/../b c"]) }),
            5 => json!({ "type": "list", "default": dice.pick_some(&["a", "no", "1", "ä, b"]) }),
            _ => {
                json!({ "type": "string", "enum": ["google", "no", "12"], "default": dice.pick(&["google", "no", "12"]) })
            }
        };
        if dice.flip() {
            input["description"] = json!(plain_text(dice));
        }
        inputs.insert(name.into(), input);
    }
    inputs
}

fn agent(dice: &mut Choices<'_>, inputs: &Map<String, Value>, delegates: bool) -> Map<String, Value> {
    let mut agent = Map::new();
    let mut tools: Vec<Value> = dice.pick_some(TOOLS).into_iter().map(Value::from).collect();
    match dice.below(4) {
        0 => tools.push(json!("bash")),
        1 => tools.push(json!({ "bash": { "allow": ["cargo test *", "git diff"], "timeout": "2m" } })),
        2 => tools.push(json!({ "bash": null })),
        _ => {}
    }
    if delegates {
        tools.push(json!("task"));
    }
    agent.insert("tools".into(), tools.into());
    if dice.flip() {
        agent.insert("max_turns".into(), json!(2 + dice.below(100)));
        agent.insert("max_tokens".into(), json!(dice.pick(&[2048, 4000, 64_000])));
    }
    if dice.flip() {
        agent.insert("system".into(), json!(text(dice, inputs)));
    }
    agent
}

/// A few lines, with tags that use the defined inputs.
fn text(dice: &mut Choices<'_>, inputs: &Map<String, Value>) -> String {
    let mut lines = Vec::new();
    for _ in 0..dice.below(5) {
        let uses: Vec<String> = inputs.keys().map(|name| format!("Use {{{{ inputs.{name} }}}}.")).collect();
        let line = if uses.is_empty() || dice.flip() { dice.word(LINES) } else { dice.pick(&uses) };
        lines.push(line.to_owned());
    }
    let end = dice.pick(&["", "\n", "\n\n"]);
    lines.join("\n") + end
}

/// Text for a key that isn't a template.
fn plain_text(dice: &mut Choices<'_>) -> String {
    ["{{ ", "{% ", "{# "].iter().fold(text(dice, &Map::new()), |text, tag| text.replace(tag, ""))
}

/// A value as YAML, in a style chosen by the dice.
pub(crate) fn yaml(dice: &mut Choices<'_>, value: &Value) -> String {
    let mut out = String::new();
    if dice.flip() {
        out += dice.word(&["# über\n", "\n", "---\n", "%YAML 1.2\n---\n", "\u{feff}"]);
    }
    match value {
        Value::Object(entries) => Writer { dice, out: &mut out, after_block: false }.mapping(entries, 0, false),
        value => Writer { dice, out: &mut out, after_block: false }.flow(value),
    }
    if dice.flip() { out.replace('\n', "\r\n") } else { out }
}

struct Writer<'a, 'b> {
    dice: &'a mut Choices<'b>,
    out: &'a mut String,
    /// Set after a block scalar: an inserted line would become part of it.
    after_block: bool,
}

impl Writer<'_, '_> {
    /// Writes the entries, one per line. If `begun`, the first entry is on the current line.
    fn mapping(&mut self, entries: &Map<String, Value>, indent: usize, begun: bool) {
        for (at, (key, value)) in entries.iter().enumerate() {
            if at > 0 || !begun {
                if self.dice.below(8) == 7 && !self.after_block {
                    *self.out += self.dice.word(&["\n", "# between: 'them'\n", "    # far\n"]);
                }
                *self.out += &" ".repeat(indent);
            }
            self.after_block = false;
            self.key(key);
            *self.out += ":";
            self.value(value, indent, true);
        }
    }

    fn key(&mut self, key: &str) {
        let is_text = !["null", "0"].contains(&key);
        match self.dice.below(6) {
            0..4 if is_text => *self.out += key,
            4 => *self.out += &format!("'{key}' "),
            _ => *self.out += &format!("\"{key}\""),
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        for item in items {
            *self.out += &" ".repeat(indent);
            *self.out += "-";
            self.after_block = false;
            match item {
                Value::Object(entries) if !entries.is_empty() && self.dice.flip() => {
                    *self.out += " ";
                    self.mapping(entries, indent + 2, true);
                }
                item => self.value(item, indent, false),
            }
        }
    }

    /// Writes the value after a key or a dash, including the end of the line. A list below a dash gets more
    /// indentation.
    fn value(&mut self, value: &Value, indent: usize, below_key: bool) {
        let step = 1 + self.dice.below(4);
        let deeper = indent + step;
        match value {
            Value::Object(entries) if !entries.is_empty() && self.dice.below(4) > 0 => {
                self.line_end();
                self.mapping(entries, deeper, false);
            }
            Value::Array(items) if !items.is_empty() && self.dice.flip() => {
                self.line_end();
                let same = below_key && self.dice.flip();
                self.list(items, if same { indent } else { deeper });
            }
            Value::String(text) if self.dice.below(3) > 0 && self.block(text, indent, step) => {}
            Value::Null if self.dice.flip() => self.line_end(),
            value => {
                *self.out += " ";
                self.flow(value);
                self.line_end();
            }
        }
    }

    fn line_end(&mut self) {
        *self.out += self.dice.word(&["\n", "\n", "  \n", " # aside\n"]);
    }

    fn flow(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.quoted(text),
            Value::Array(items) => {
                *self.out += "[";
                for (at, item) in items.iter().enumerate() {
                    *self.out += if at > 0 { ", " } else { "" };
                    self.flow(item);
                }
                *self.out += "]";
            }
            Value::Object(entries) => {
                *self.out += "{ ";
                for (at, (key, value)) in entries.iter().enumerate() {
                    *self.out += if at > 0 { ", " } else { "" };
                    self.key(key);
                    *self.out += ": ";
                    self.flow(value);
                }
                *self.out += " }";
            }
            Value::Null => *self.out += self.dice.word(&["null", "~"]),
            other => *self.out += &other.to_string(),
        }
    }

    fn quoted(&mut self, text: &str) {
        let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_/.".contains(letter))
            && !["null", "true", "false"].contains(&text);
        match self.dice.below(3) {
            0 if is_plain => *self.out += text,
            1 if !text.contains(['\n', '\t']) => *self.out += &format!("'{}'", text.replace('\'', "''")),
            _ => *self.out += &Value::from(text).to_string(),
        }
    }

    /// A literal or folded scalar, if the text can be written as one.
    fn block(&mut self, text: &str, indent: usize, step: usize) -> bool {
        let body = text.trim_end_matches('\n');
        let ends = text.len() - body.len();
        let lines: Vec<&str> = body.split('\n').collect();
        if lines.iter().any(|line| !line.is_empty() && line.trim().is_empty()) || body.trim().is_empty() {
            return false;
        }
        let needs_digit = lines[0].is_empty() || lines[0].starts_with(' ');
        let digit = if needs_digit || self.dice.flip() { step.to_string() } else { String::new() };
        let folds = lines.len() == 1
            && !body.contains("  ")
            && !body.contains('\t')
            && !body.ends_with(' ')
            && self.dice.flip();
        let (style, chomping) = (if folds { '>' } else { '|' }, ["-", "", "+"][ends.min(2)]);
        *self.out += &format!(" {style}{digit}{chomping}");
        *self.out += self.dice.word(&["\n", " # aside\n"]);
        let written = if folds { body.replacen(' ', "\n", 2) } else { body.to_owned() };
        for line in written.split('\n') {
            if !line.is_empty() {
                *self.out += &" ".repeat(indent + step);
                *self.out += line;
            }
            *self.out += "\n";
        }
        *self.out += &"\n".repeat(ends.saturating_sub(1));
        self.after_block = true;
        true
    }
}

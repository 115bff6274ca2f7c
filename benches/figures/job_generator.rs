//! Generates job files that resemble those of a real repository. No two are alike; some are valid, others have 22
//! mistakes.

/// The number of mistakes in each broken file.
pub(crate) const MISTAKES: usize = MISTAKE_LINES.len();

/// A valid job. The number selects its variant.
pub(crate) fn good(number: usize) -> String {
    let mut dice = Dice(number as u64);
    let [service, part, tongue, careful, look] =
        [SERVICES, PARTS, LANGUAGES, CAREFUL, LOOK].map(|choices| choices[dice.below(choices.len())]);
    let [style, other] = STYLES[dice.below(STYLES.len())];
    let (turns, dollars, minutes) = (20 + dice.below(60), 1 + dice.below(9), 5 + dice.below(50));
    format!(
        "name: {part}-{number}
description: Writes the {part} of the {service} service, in {tongue} and for people who are new to it.

inputs:
  folder: {{ type: path, default: services/{service} }}
  style: {{ type: string, enum: [{style}, {other}], default: {style} }}
  most_files: {{ type: integer, default: {turns} }}

model: anthropic/claude-sonnet-4-6

parent:
  system: |
    You are a coding agent in {{{{ workspace }}}}, and you know {tongue} well. {careful}
    {look}
  prompt: |
    Write the missing {part} in {{{{ inputs.style }}}} style for everything below {{{{ inputs.folder | trim }}}}.
    Touch at most {{{{ inputs.most_files }}}} files{{% if inputs.style == '{other}' %}}, one at a time{{% endif %}}.
  tools:
    - read_file
    - grep
    - edit_file
    - task
    - bash: {{ allow: [\"{tongue} test *\", \"git diff *\"], timeout: 2m }}
  max_turns: {turns}
  max_tokens: 8000

subagents:
  explorer:
    description: Reads the code of {service} and answers one question about it.
    system: Read before you answer. {look}
    tools: [read_file, glob, grep]
    max_turns: 30
    model: anthropic/claude-haiku-4-5

limits:
  cost_usd: {dollars}.50
  tokens: 2000000
  wall_clock: {minutes}m
  parallel_subagents: 2

env: [CARGO_HOME, LANG]
network: none
keep: on_failure
"
    )
}

/// The same job with a mistake in nearly every line.
pub(crate) fn bad(number: usize) -> String {
    let mut text = good(number);
    for (right, wrong) in MISTAKE_LINES {
        let at = text.find(right).unwrap_or_else(|| panic!("{right:?} isn't in\n{text}"));
        // A mistake that ends with an ellipsis replaces the rest of the line.
        let (end, wrong) = match wrong.strip_suffix('…') {
            Some(wrong) => (text[at..].find('\n').map_or(text.len(), |length| at + length), wrong),
            None => (at + right.len(), *wrong),
        };
        text.replace_range(at..end, wrong);
    }
    text
}

const MISTAKE_LINES: &[(&str, &str)] = &[
    ("type: path", "type: pth"),
    ("], default: ", "], default: not-"),
    ("type: integer, default: ", "type: integer, default: about "),
    ("model: anthropic/claude-sonnet", "model: antropic/claude-sonnet"),
    ("{{ workspace }}", "{{ workspce }}"),
    ("{{ inputs.style }}", "{{ inputs.stlye }}"),
    ("| trim", "| trm"),
    ("- read_file", "- Read"),
    ("- grep", "- ripgrep"),
    ("allow: ", "alow: "),
    ("timeout: 2m", "timeout: 2 minutes"),
    ("  max_turns: ", "  max_turns: 0 #"),
    ("max_tokens: 8000", "max_tokens: many"),
    ("    description: ", "    descripton: "),
    ("[read_file, glob, grep]", "[read_file, glob, task]"),
    ("    max_turns: 30", "    maxTurns: 30"),
    ("cost_usd: ", "cost_usd: free #"),
    ("tokens: 2000000", "tokens: 0"),
    ("wall_clock: ", "wall_clock: soon …"),
    ("env: [CARGO_HOME", "env: [CARGO HOME"),
    ("network: none", "network: closed"),
    ("keep: on_failure", "kepp: on_failure"),
];

const SERVICES: &[&str] = &["payments", "search", "billing", "identity", "catalogue", "shipping", "reports", "inbox"];
const PARTS: &[&str] = &["docstrings", "changelog", "migration-notes", "unit-tests", "error-messages", "type-hints"];
const LANGUAGES: &[&str] = &["cargo", "go", "npm", "pytest", "gradle"];
const STYLES: &[[&str; 2]] = &[["google", "numpy"], ["short", "long"], ["plain", "markdown"]];
const CAREFUL: &[&str] = &[
    "Change nothing that you were not asked to change, and run the tests after every file that you edit.",
    "Prefer the smallest change that does the job; where a name is unclear, look for its callers first.",
    "Über alles: keep the public interface as it is, and say so where you could not.",
];
const LOOK: &[&str] = &[
    "Name each file with the line that shows what you say about it, so that a reader can check.",
    "Where the code and its comments differ, believe the code, and mention the comment in your answer.",
    "Answer in at most ten lines, the most important one first, and leave out what everybody knows.",
];

/// Pseudo-random numbers, reproducible (the constants are those of Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

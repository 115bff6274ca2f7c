//! The variables that templates may use, and the inputs that they do use.

use std::collections::{HashMap, HashSet};

/// The variables of a job's templates.
#[derive(Debug, Clone, Default)]
pub struct TemplateVariables {
    /// The inputs that templates can use.
    pub inputs: Vec<String>,
    /// The types of inputs, where they are known.
    pub types: HashMap<String, ValueType>,
    /// The secret inputs, which templates can't use.
    pub secret: Vec<String>,
    /// The inputs that untrusted users can write.
    pub untrusted: Vec<String>,
    /// Whether the job may have inputs that couldn't be read, so that an unknown one isn't an error.
    pub inputs_incomplete: bool,
    /// The parts of `before`: the names of the steps before the agent, and `files`. Empty without steps.
    pub before: Vec<String>,
    /// Whether the job may have steps that couldn't be read.
    pub before_incomplete: bool,
    /// Whether the job keeps a state.
    pub has_state: bool,
}

/// The variable with the values of the steps before the agent.
pub(super) const BEFORE: &str = "before";
/// The variable with the value that is kept between runs.
pub(super) const STATE: &str = "state";

/// The variables other than `inputs`, with their attributes. One without attributes is a text.
const BUILTIN_VARIABLES: &[(&str, &[&str])] = &[("workspace", &[]), ("job", &["name"]), ("run", &["id", "date"])];

/// The number of inputs that a misspelled name is compared with, and the number that a message lists.
const MAX_SUGGESTED: usize = 200;
const MAX_LISTED: usize = 30;

impl TemplateVariables {
    /// Whether it is the name of a variable with parts.
    pub(super) fn is_root(name: &str) -> bool {
        name == "inputs" || Self::is_late(name) || Self::parts(name).is_some_and(|parts| !parts.is_empty())
    }

    /// The variables that can be written alone.
    pub(super) fn roots<'a>() -> impl Iterator<Item = &'a str> {
        std::iter::once("inputs").chain(BUILTIN_VARIABLES.iter().map(|(name, _)| *name))
    }

    /// The parts of a variable other than `inputs`; `None` where there is no such variable.
    pub(super) fn parts(root: &str) -> Option<&'static [&'static str]> {
        BUILTIN_VARIABLES.iter().find(|(name, _)| *name == root).map(|(_, parts)| *parts)
    }

    /// Inputs to suggest for a misspelled name.
    pub fn suggestable_inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().take(MAX_SUGGESTED).map(String::as_str)
    }

    /// Whether it is the name of a variable whose value is known only when a run has started.
    pub(super) fn is_late(name: &str) -> bool {
        [BEFORE, STATE].contains(&name)
    }

    /// Whether templates of the job have such a variable.
    pub(super) fn has_late(&self, name: &str) -> bool {
        match name {
            BEFORE => !self.before.is_empty() || self.before_incomplete,
            _ => self.has_state,
        }
    }

    /// All variables for a message, with the first inputs of many.
    pub(super) fn listed(&self) -> String {
        let inputs = self.inputs.iter().take(MAX_LISTED).map(|name| format!("`inputs.{name}`"));
        let more = (self.inputs.len() > MAX_LISTED).then(|| "more inputs".to_owned());
        let inputs = inputs.chain(more);
        let fixed = BUILTIN_VARIABLES.iter().flat_map(|(root, parts)| {
            let whole = parts.is_empty().then(|| format!("`{root}`"));
            whole.into_iter().chain(parts.iter().map(move |part| format!("`{root}.{part}`")))
        });
        let before = self.before.iter().take(MAX_LISTED).map(|name| format!("`{BEFORE}.{name}`"));
        let state = self.has_state.then(|| format!("`{STATE}`"));
        inputs.chain(before).chain(state).chain(fixed).collect::<Vec<_>>().join(", ")
    }
}

/// The inputs that the texts of a job name.
#[derive(Debug, Default)]
pub struct UsedInputs {
    pub(super) inputs: HashSet<String>,
    /// `inputs` is used as a whole, or by names that are only known when the text is rendered.
    pub(super) all: bool,
    /// Some text couldn't be checked to its end.
    pub(super) is_incomplete: bool,
}

impl UsedInputs {
    /// Whether a text uses the input.
    pub fn has(&self, input: &str) -> bool {
        self.all || self.inputs.contains(input)
    }

    /// Whether every text was checked to its end, so that the other inputs are certainly unused.
    pub fn is_complete(&self) -> bool {
        !self.is_incomplete
    }

    /// Notes that the job uses an input.
    pub fn add(&mut self, input: &str) {
        if !self.inputs.contains(input) {
            self.inputs.insert(input.to_owned());
        }
    }
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A text or a path.
    Text,
    /// An integer or another number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list of texts.
    List,
}

impl ValueType {
    /// The type with its article.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::List => "a list",
        }
    }
}

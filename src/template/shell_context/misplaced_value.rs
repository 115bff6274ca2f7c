//! Where a value of a command can't stand, in words.

/// Where a value stands that mustn't.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::template) enum MisplacedValue {
    Quotes,
    Escaped,
    Dollar,
    Comment,
    Document,
    Arithmetic,
    Substituted,
    Backquotes,
    Conditional,
    Subscript,
    /// Behind something of which it isn't sure where it ends.
    Uncertain(&'static str),
}

impl MisplacedValue {
    /// What is wrong, and what to do about it.
    pub(in crate::template) fn message_and_help(self) -> (String, &'static str) {
        let inside = |what: &str| format!("this value stands {what}");
        match self {
            Self::Quotes => (inside("in quotes"), "values are quoted already: remove the quotes around it"),
            Self::Escaped => (inside("behind a backslash"), "values are quoted already: remove the backslash"),
            Self::Dollar => (inside("behind a `$`"), "remove the `$`: `{{ inputs.NAME }}` is the value itself"),
            Self::Comment => (inside("in a comment"), "remove it: a value with a line end would leave the comment"),
            Self::Document => {
                (inside("in a here-document"), "give it to the command as a word, or as `<<< {{ inputs.NAME }}`")
            }
            Self::Arithmetic => (inside("in arithmetic, which runs what it is given"), VARIABLE_HELP),
            Self::Substituted => (inside("in `${...}`"), VARIABLE_HELP),
            Self::Backquotes => {
                (inside("in or behind backquotes"), "write `$(COMMAND)` in the place of the backquotes")
            }
            Self::Conditional => (inside("in `[[ ]]`, which can run what it is given"), "write `[ ... ]` instead"),
            Self::Subscript => (inside("in a subscript, which runs what it is given"), VARIABLE_HELP),
            Self::Uncertain(what) => (
                format!("this value stands behind {what}, of which it isn't sure where it ends"),
                "put the value into a variable of the shell before it, as `name={{ inputs.NAME }}`, and use `\"$name\"`",
            ),
        }
    }
}

const VARIABLE_HELP: &str =
    "put the value into a variable of the shell first, as `name={{ inputs.NAME }}`, and check what it holds";

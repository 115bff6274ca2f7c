//! The variables that a template may use.

/// The names that a job's templates know.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The inputs that may be used.
    pub inputs: Vec<String>,
    /// The inputs whose values never enter a text.
    pub secret: Vec<String>,
    /// The inputs whose text strangers can write.
    pub untrusted: Vec<String>,
    /// Whether the job may have inputs that couldn't be read, so that an unknown one is no finding.
    pub inputs_incomplete: bool,
}

/// The variables beside `inputs`, with their parts; one without parts is a text.
const FIXED: &[(&str, &[&str])] = &[("workspace", &[]), ("job", &["name"]), ("run", &["id", "date"])];

impl Names {
    /// The variables that can be written alone.
    pub(super) fn roots<'a>() -> impl Iterator<Item = &'a str> {
        std::iter::once("inputs").chain(FIXED.iter().map(|(name, _)| *name))
    }

    /// The parts of a variable other than `inputs`; `None` where there is no such variable.
    pub(super) fn parts(root: &str) -> Option<&'static [&'static str]> {
        FIXED.iter().find(|(name, _)| *name == root).map(|(_, parts)| *parts)
    }

    /// Every variable in full, for a message.
    pub(super) fn listed(&self) -> String {
        let inputs = self.inputs.iter().map(|name| format!("`inputs.{name}`"));
        let fixed = FIXED.iter().flat_map(|(root, parts)| {
            let whole = parts.is_empty().then(|| format!("`{root}`"));
            whole.into_iter().chain(parts.iter().map(move |part| format!("`{root}.{part}`")))
        });
        inputs.chain(fixed).collect::<Vec<_>>().join(", ")
    }
}

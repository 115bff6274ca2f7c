//! Values that are in no plan.

/// The values of a job's secret inputs, by name. They are never shown, not even to `{:?}`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<(String, String)>);

impl Secrets {
    pub(super) fn push(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    /// The inputs' names, as the job writes them, and their values, in the job's order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "))
    }
}

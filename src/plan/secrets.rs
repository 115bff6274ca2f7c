//! The values of secret inputs, which aren't part of a plan.

use super::InputValues;
use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_name};

/// The values of a job's secret inputs, by name. `{:?}` shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretInputs(Vec<(String, String)>);

impl SecretInputs {
    pub(super) fn push(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    /// The inputs' names, as the job writes them, and their values, in the job's order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl std::fmt::Debug for SecretInputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "))
    }
}

impl InputValues {
    /// The values for the secret inputs of an existing plan. Exactly these inputs must be given.
    ///
    /// # Errors
    /// The inputs that are missing, empty or unknown.
    pub fn secret_inputs(&self, names: &[String]) -> Result<SecretInputs, Vec<Diagnostic>> {
        let mut findings = self.findings.clone();
        let mut secrets = SecretInputs::default();
        for text in self.texts.iter().filter(|text| !names.contains(&text.name)) {
            let (name, _) = text.places(true);
            let message = format!("`{}` isn't a secret input of this run", text.name);
            let finding = Diagnostic::error("unknown-input", name, message);
            findings.push(match suggest_name(&text.name, names.iter().map(String::as_str)) {
                Some(meant) => finding.help(format!("did you mean `{meant}`?")),
                None => finding.help("other inputs are in the run's plan and can't be changed"),
            });
        }
        for name in names {
            match self.texts.iter().find(|text| text.name == *name) {
                Some(text) if text.value.trim().is_empty() => {
                    let message = format!("the input `{name}` is secret, and empty");
                    let finding = Diagnostic::error("bad-input", text.places(true).1, message);
                    findings.push(finding.help("set the variable in the environment of legwork"));
                }
                Some(text) => secrets.push(name, text.value.clone()),
                None if !self.findings.is_empty() => {}
                None => {
                    let place = SourceSpan { source: Source::new("--set-env", ""), range: 0..0 };
                    let message = format!("the secret input `{name}` isn't recorded and must be given again");
                    let finding = Diagnostic::error("missing-input", place, message);
                    findings.push(finding.help(format!("give it with `--set-env {name}=VARIABLE`")));
                }
            }
        }
        if findings.is_empty() { Ok(secrets) } else { Err(findings) }
    }
}

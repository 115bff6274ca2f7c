//! Brings together what a job wants and what it is given.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use super::{Given, Secrets};
use crate::diagnostic::{Diagnostic, Place, Source, nearest};
use crate::job::value::{checked, from_text};
use crate::job::{Input, Job};
use crate::lints::ValidJob;
use crate::yaml::{self, Kind, Node};

/// The values of a job's inputs, defaults filled in, in the job's order.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) plain: IndexMap<String, Value>,
    pub(super) secrets: Secrets,
}

/// One given value that an input takes, and what to point to when it doesn't fit.
struct Taken {
    value: Result<Value, String>,
    place: Place,
}

pub(super) fn resolve(job: &ValidJob, given: &Given, workspace: &str) -> Result<Values, Vec<Diagnostic>> {
    let mut findings = given.findings.clone();
    let mut taken = HashMap::new();
    for source in &given.files {
        read_file(job.job(), source, &mut taken, &mut findings);
    }
    read_texts(job.job(), given, &mut taken, &mut findings);
    // An argument that can't be read was meant for something, so that what is missing may be just that.
    let unread = !given.findings.is_empty();
    let mut values = Values::default();
    for (name, input) in job.job().inputs() {
        match taken.remove(name.value.as_str()) {
            Some(Taken { value, place }) => {
                match value
                    .and_then(|value| checked(input, value, Some(workspace)))
                    .and_then(|value| full(input, value))
                {
                    Ok(value) => values.put(&name.value, input, value),
                    Err(why) => findings.push(
                        Diagnostic::error("bad-input", place, format!("the input `{}` {why}", name.value)).help(
                            format!(
                                "the job declares it in line {} of {}",
                                name.place().start().0,
                                name.place().source.name
                            ),
                        ),
                    ),
                }
            }
            None => match &input.default {
                Some(default) => values.put(&name.value, input, default.to_json()),
                None if unread => {}
                None => {
                    let how = if input.is_secret() { "--set-env NAME=VARIABLE" } else { "--set NAME=VALUE" };
                    findings.push(
                        Diagnostic::error(
                            "missing-input",
                            name.place(),
                            format!("the input `{}` is required and isn't given", name.value),
                        )
                        .help(format!("give it with `{}`", how.replacen("NAME", &name.value, 1))),
                    );
                }
            },
        }
    }
    if findings.is_empty() { Ok(values) } else { Err(findings) }
}

impl Values {
    fn put(&mut self, name: &str, input: &Input, value: Value) {
        match value {
            Value::String(secret) if input.is_secret() => self.secrets.push(name, secret),
            value => {
                self.plain.insert(name.to_owned(), value);
            }
        }
    }
}

/// A secret must be there: an empty one is a variable that wasn't set where the job was started.
fn full(input: &Input, value: Value) -> Result<Value, String> {
    match &value {
        Value::String(text) if input.is_secret() && text.trim().is_empty() => Err("is secret, and empty".to_owned()),
        _ => Ok(value),
    }
}

fn read_texts(job: &Job, given: &Given, taken: &mut HashMap<String, Taken>, findings: &mut Vec<Diagnostic>) {
    let mut earlier: HashMap<&str, Place> = HashMap::new();
    for text in &given.texts {
        let declared = job.inputs().find(|(name, _)| name.value == text.name);
        let (name_place, value_place) = text.places(declared.is_none_or(|(_, input)| input.is_secret()));
        let Some((_, input)) = declared else {
            findings.push(unknown(job, &text.name, name_place));
            continue;
        };
        if let Some(first) = earlier.insert(&text.name, name_place.clone()) {
            findings.push(
                Diagnostic::error("duplicate-input", name_place, format!("the input `{}` is given twice", text.name))
                    .label(first, "first here")
                    .help("give it once"),
            );
            continue;
        }
        let value = from_text(input.kind.value, &text.value, text.listing);
        taken.insert(text.name.clone(), Taken { value, place: value_place });
    }
}

fn read_file(job: &Job, source: &Arc<Source>, taken: &mut HashMap<String, Taken>, findings: &mut Vec<Diagnostic>) {
    let has_secrets = job.inputs().any(|(_, input)| input.is_secret());
    let decoded = yaml::read::<Node>(source);
    // Where the text can't be read as YAML, nobody knows which part of it is secret.
    let all = 0..source.text.len();
    let hidden = if has_secrets { hide(source, std::iter::once(all)) } else { source.clone() };
    findings.extend(decoded.findings.into_iter().map(|finding| moved(finding, &hidden)));
    let Some(root) = decoded.value else { return };
    if root.kind() != Kind::Mapping {
        if root.kind() != Kind::Broken {
            let place = Place { source: hidden, span: root.place().span };
            findings.push(
                Diagnostic::error("bad-input", place, "expected a mapping of names to values")
                    .help("write a line `NAME: VALUE` for each input"),
            );
        }
        return;
    }
    let is_plain = |name: &str| job.inputs().any(|(declared, input)| declared.value == name && !input.is_secret());
    let delicate = root.entries().filter(|(key, _)| !is_plain(key.text().unwrap_or_default()));
    let shown = hide(source, delicate.map(|(_, value)| value.place().span).collect::<Vec<_>>().into_iter());
    for (key, value) in root.entries() {
        let name = key.text().unwrap_or_default();
        let place = |node: &Node| Place { source: shown.clone(), span: node.place().span };
        if !job.inputs().any(|(declared, _)| declared.value == name) {
            findings.push(unknown(job, name, place(&key)));
        } else {
            taken.insert(name.to_owned(), Taken { value: Ok(value.to_json()), place: place(&value) });
        }
    }
}

fn unknown(job: &Job, name: &str, place: Place) -> Diagnostic {
    let finding = Diagnostic::error("unknown-input", place, format!("the job has no input `{name}`"));
    let known: Vec<&str> = job.inputs().map(|(name, _)| name.value.as_str()).collect();
    match nearest(name, known.iter().copied()) {
        Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
        None if known.is_empty() => finding.help("it takes none"),
        None => finding.help(format!("it has `{}`", known.join("`, `"))),
    }
}

fn moved(mut finding: Diagnostic, source: &Arc<Source>) -> Diagnostic {
    finding.place.source = source.clone();
    finding.labels.iter_mut().for_each(|label| label.place.source = source.clone());
    finding
}

/// The same text, with asterisks where something may be secret; every line and every byte stays where it was.
fn hide(source: &Arc<Source>, ranges: impl Iterator<Item = std::ops::Range<usize>>) -> Arc<Source> {
    let mut bytes = source.text.clone().into_bytes();
    for range in ranges {
        for byte in bytes.get_mut(range).into_iter().flatten().filter(|byte| !matches!(**byte, b'\n' | b'\r')) {
            *byte = b'*';
        }
    }
    let masked = Source::new(source.name.clone(), String::from_utf8_lossy(&bytes));
    if source.is_quotable() { masked } else { masked.unquotable() }
}

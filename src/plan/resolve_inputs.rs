//! Matches the given values with the inputs that a job declares.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use super::input_attachments::{self, Base, InputAttachment};
use super::row::CellValue;
use super::{InputValues, SecretInputs};
use crate::attachment::AttachmentTotals;
use crate::diagnostic::{Diagnostic, Source, SourceSpan, suggest_name};
use crate::job::value::{ListSeparator, check_value, parse_value};
use crate::job::{Input, InputType, Job};
use crate::lints::ValidJob;
use crate::yaml::{self, Node, NodeKind, Spanned};

/// The values of a job's inputs, defaults included, in the job's order.
#[derive(Debug, Default)]
pub(super) struct ResolvedInputs {
    pub(super) plain: IndexMap<String, Value>,
    pub(super) secrets: SecretInputs,
    /// The images and documents, in the job's order.
    pub(super) attachments: Vec<InputAttachment>,
}

/// A given value, and its place for findings.
struct GivenValue {
    value: Result<Value, String>,
    place: SourceSpan,
    /// Whether the value is the path of a file from the current folder.
    is_named_file: bool,
}

/// Matches the values with the inputs. An absolute path below `inputs_from` is one of the workspace, too.
pub(super) fn resolve(
    job: &ValidJob,
    given: &InputValues,
    workspace: &str,
    inputs_from: Option<&str>,
) -> Result<ResolvedInputs, Vec<Diagnostic>> {
    let mut findings = given.findings.clone();
    let mut taken = HashMap::new();
    for source in &given.files {
        read_file(job.job(), source, &mut taken, &mut findings);
    }
    read_row(job.job(), given, &mut taken);
    read_arguments(job.job(), given, &mut taken, &mut findings);
    // An unreadable argument may be for any input, so missing inputs aren't reported.
    let unread = !given.findings.is_empty();
    let mut values = ResolvedInputs::default();
    let mut totals = AttachmentTotals::default();
    for (name, input) in job.job().inputs() {
        let taken = taken.remove(name.value.as_str());
        let mut attach = |value: &Value, base: Base<'_>| {
            let Some(path) = value.as_str().filter(|_| input.kind.value == InputType::Image && !given.reads_no_files)
            else {
                return Ok(());
            };
            let recorded = given.recorded.iter().find(|recorded| recorded.input == name.value).cloned();
            let attachment = match recorded {
                Some(recorded) => recorded,
                None => InputAttachment {
                    input: name.value.clone(),
                    path: path.to_owned(),
                    file: input_attachments::read(path, base)?,
                },
            };
            totals.try_add(&attachment.file).map_err(|why| format!("is one too many: {why}"))?;
            values.attachments.push(attachment);
            Ok(())
        };
        match taken {
            Some(GivenValue { value, place, is_named_file }) => {
                let (base, root) = match is_named_file && input.kind.value == InputType::Image {
                    true => (Base::CurrentFolder, None),
                    false => (Base::Workspace(workspace), Some(workspace)),
                };
                let checked = value.and_then(|value| match root {
                    None => Ok(value),
                    root => check_value(input, in_workspace(input, value, workspace, inputs_from), root),
                });
                let checked = checked.and_then(|value| attach(&value, base).map(|()| value));
                match checked.and_then(|value| reject_empty_secret(input, value)) {
                    Ok(value) => values.put(&name.value, input, value),
                    Err(why) => {
                        let message = format!("the input `{}` {why}", name.value);
                        let (line, file) = (name.place().start().0, &name.place().source.name);
                        let help = format!("the job declares it on line {line} of {file}");
                        findings.push(Diagnostic::error("bad-input", place, message).help(help));
                    }
                }
            }
            None => match &input.default {
                Some(default) => {
                    let value = default.to_json();
                    match attach(&value, Base::Workspace(workspace)) {
                        Ok(()) => values.put(&name.value, input, value),
                        Err(why) => {
                            let message = format!("the input `{}` {why}", name.value);
                            let finding = Diagnostic::error("bad-input", default.place(), message);
                            findings.push(finding.help(format!("give another with `--set {}=PATH`", name.value)));
                        }
                    }
                }
                None if unread => {}
                None => findings.push(missing(name, input, given)),
            },
        }
    }
    if findings.is_empty() { Ok(values) } else { Err(findings) }
}

impl ResolvedInputs {
    fn put(&mut self, name: &str, input: &Input, value: Value) {
        match value {
            Value::String(secret) if input.is_secret() => self.secrets.push(name, secret),
            value => {
                self.plain.insert(name.to_owned(), value);
            }
        }
    }
}

/// A value as it is in the workspace: an absolute path below the folder in which the inputs are given becomes a relative one.
fn in_workspace(input: &Input, value: Value, workspace: &str, inputs_from: Option<&str>) -> Value {
    let Some(from) = inputs_from.filter(|_| input.is_path()) else { return value };
    let path = value.as_str().map(Path::new).filter(|path| path.is_absolute() && !path.starts_with(workspace));
    match path.and_then(|path| path.strip_prefix(from).ok()) {
        Some(relative) if relative.as_os_str().is_empty() => Value::from("."),
        Some(relative) => Value::from(relative.to_string_lossy()),
        None => value,
    }
}

/// Refuses an empty secret: usually the variable wasn't set where the job was started.
fn reject_empty_secret(input: &Input, value: Value) -> Result<Value, String> {
    match &value {
        Value::String(text) if input.is_secret() && text.trim().is_empty() => Err("is secret, and empty".to_owned()),
        _ => Ok(value),
    }
}

/// A required input without a value. A row may have all inputs but secret ones, so the place is there.
fn missing(name: &Spanned<String>, input: &Input, given: &InputValues) -> Diagnostic {
    if let Some((source, row)) = given.row.as_ref().filter(|_| !input.is_secret()) {
        let place = SourceSpan { source: Arc::clone(source), range: row.range.clone() };
        let message = format!("the row has no value for the required input `{}`", name.value);
        let help = format!("add a column `{0}`, or give it for all rows with `--set {0}=VALUE`", name.value);
        return Diagnostic::error("missing-input", place, message).help(help);
    }
    let message = format!("the input `{}` is required but not given", name.value);
    let (option, value) = if input.is_secret() { ("--set-env", "VARIABLE") } else { ("--set", "VALUE") };
    let help = format!("give it with `{option} {}={value}`", name.value);
    Diagnostic::error("missing-input", name.place(), message).help(help)
}

/// Takes the values of a row. Its columns were compared with the job's inputs when the file was read.
fn read_row(job: &Job, given: &InputValues, taken: &mut HashMap<String, GivenValue>) {
    let Some((source, row)) = &given.row else { return };
    for cell in &row.cells {
        let Some((_, input)) = job.inputs().find(|(name, _)| *name.value == *cell.name) else { continue };
        let value = match &cell.value {
            CellValue::Text(text) => parse_value(input.kind.value, text, ListSeparator::Commas),
            CellValue::Json(value) => Ok(value.clone()),
        };
        let place = SourceSpan { source: Arc::clone(source), range: cell.range.clone() };
        taken.insert(cell.name.to_string(), GivenValue { value, place, is_named_file: false });
    }
}

fn read_arguments(
    job: &Job,
    given: &InputValues,
    taken: &mut HashMap<String, GivenValue>,
    findings: &mut Vec<Diagnostic>,
) {
    for text in &given.texts {
        let declared = job.inputs().find(|(name, _)| name.value == text.name);
        let (name_place, value_place) = text.places(declared.is_none_or(|(_, input)| input.is_secret()));
        let Some((_, input)) = declared else {
            findings.push(unknown(job, &text.name, name_place));
            continue;
        };
        if given.row.as_ref().is_some_and(|(_, row)| row.cells.iter().any(|cell| *cell.name == *text.name)) {
            let message = format!("the input `{}` is also a column of the rows", text.name);
            let finding = Diagnostic::error("duplicate-input", name_place, message);
            findings.push(finding.help("remove this option, or the column"));
            continue;
        }
        let value = parse_value(input.kind.value, &text.value, text.listing);
        let is_named_file = text.is_named_file;
        taken.insert(text.name.clone(), GivenValue { value, place: value_place, is_named_file });
    }
}

fn read_file(job: &Job, source: &Arc<Source>, taken: &mut HashMap<String, GivenValue>, findings: &mut Vec<Diagnostic>) {
    let has_secrets = job.inputs().any(|(_, input)| input.is_secret());
    let decoded = yaml::read::<Node>(source);
    // In a text that isn't valid YAML, any part may be secret.
    let all = 0..source.text.len();
    let hidden = if has_secrets { redact_ranges(source, std::iter::once(all)) } else { source.clone() };
    findings.extend(decoded.findings.into_iter().map(|finding| relocate_finding(finding, &hidden)));
    let Some(root) = decoded.value else { return };
    if root.kind() != NodeKind::Mapping {
        if root.kind() != NodeKind::Invalid {
            let place = SourceSpan { source: hidden, range: root.place().range };
            findings.push(
                Diagnostic::error("bad-input", place, "expected a mapping of names to values")
                    .help("write a line `NAME: VALUE` for each input"),
            );
        }
        return;
    }
    let is_plain = |name: &str| job.inputs().any(|(declared, input)| declared.value == name && !input.is_secret());
    let secret = root.entries().filter(|(key, _)| !is_plain(key.text().unwrap_or_default()));
    let shown = redact_ranges(source, secret.map(|(_, value)| value.place().range).collect::<Vec<_>>().into_iter());
    for (key, value) in root.entries() {
        let name = key.text().unwrap_or_default();
        let place = |node: &Node| SourceSpan { source: shown.clone(), range: node.place().range };
        if !job.inputs().any(|(declared, _)| declared.value == name) {
            findings.push(unknown(job, name, place(&key)));
        } else {
            taken.insert(
                name.to_owned(),
                GivenValue { value: Ok(value.to_json()), place: place(&value), is_named_file: false },
            );
        }
    }
}

fn unknown(job: &Job, name: &str, place: SourceSpan) -> Diagnostic {
    let finding = Diagnostic::error("unknown-input", place, format!("the job has no input `{name}`"));
    let known: Vec<&str> = job.inputs().map(|(name, _)| name.value.as_str()).collect();
    match suggest_name(name, known.iter().copied()) {
        Some(meant) => finding.help(format!("did you mean `{meant}`?")).replace_with(meant),
        None if known.is_empty() => finding.help("the job has no inputs"),
        None => finding.help(format!("its inputs are `{}`", known.join("`, `"))),
    }
}

fn relocate_finding(mut finding: Diagnostic, source: &Arc<Source>) -> Diagnostic {
    finding.span.source = source.clone();
    finding.labels.iter_mut().for_each(|label| label.span.source = source.clone());
    finding
}

/// The same text with asterisks instead of ranges that may be secret, byte for byte, so that places stay valid.
fn redact_ranges(source: &Arc<Source>, ranges: impl Iterator<Item = std::ops::Range<usize>>) -> Arc<Source> {
    let mut bytes = source.text.clone().into_bytes();
    for range in ranges {
        for byte in bytes.get_mut(range).into_iter().flatten().filter(|byte| !matches!(**byte, b'\n' | b'\r')) {
            *byte = b'*';
        }
    }
    let masked = Source::new(source.name.clone(), String::from_utf8_lossy(&bytes));
    if source.is_quotable() { masked } else { masked.without_quotes() }
}

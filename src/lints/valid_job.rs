//! A job that may run.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use crate::diagnostic::{Diagnostic, Source};
use crate::job::{InputType, Job, PromptText, name_from_file};
use crate::json_schema::SchemaReader;
use crate::providers::user_servers::UserServers;
use crate::template::{JobDir, Loader, Template, TemplateVariables, Templates, TextRole, ValueType};
use crate::yaml::{Node, Spanned};

use super::key_aliases;

/// A job in which nothing is wrong, with its prompt files: the only thing that a plan can be made from, and only
/// [`super::check`] makes it.
#[derive(Debug)]
pub struct ValidJob {
    source: Arc<Source>,
    name: String,
    job: Job,
    prompts: Prompts,
    schemas: Schemas,
    servers: UserServers,
}

impl ValidJob {
    pub(super) fn new(
        source: &Arc<Source>,
        job: Job,
        prompts: Prompts,
        schemas: Schemas,
        servers: &UserServers,
    ) -> Option<Self> {
        let name = name_of(&job, source)?;
        Some(Self { source: source.clone(), name, job, prompts, schemas, servers: servers.clone() })
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The job as the file says it.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Its texts.
    pub fn prompts(&self) -> &Prompts {
        &self.prompts
    }

    /// The schemas of the data that its agents end with.
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// The servers of the user's own that its models may name.
    pub fn servers(&self) -> &UserServers {
        &self.servers
    }

    /// The file that it comes from.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }
}

/// The name that a job gives itself, or one made from its file's name.
pub(super) fn name_of(job: &Job, source: &Source) -> Option<String> {
    match &job.name {
        Some(name) => Some(name.value.clone()),
        None => name_from_file(&source.name),
    }
}

/// A job's texts.
#[derive(Debug)]
pub struct Prompts {
    /// The texts themselves, included files and all.
    pub templates: Templates,
    /// The parent's prompt; absent where its file can't be read.
    pub prompt: Option<Template>,
    /// The parent's own system prompt.
    pub system: Option<Template>,
    /// The subagents' own system prompts, by name.
    pub subagents: IndexMap<String, Template>,
    /// The `when` of each check, in the job's order.
    pub conditions: Vec<Option<Template>>,
    /// What the texts may name.
    pub variables: TemplateVariables,
}

impl Prompts {
    /// Reads and checks all texts of a job. `root`: the same as YAML, which may hold what the job lacks.
    pub(super) fn load(job: &Job, root: &Node, folder: Option<&JobDir>) -> (Self, Vec<Diagnostic>) {
        let names = template_variables(job, root);
        let mut loader = Loader::new(folder, &names);
        let prompt = load_prompt(&mut loader, &job.parent.prompt, TextRole::Prompt);
        let system = job.parent.system.as_ref().and_then(|system| load_prompt(&mut loader, system, TextRole::System));
        let mut subagents = IndexMap::new();
        for (name, subagent) in &job.subagents {
            if let Some(system) =
                subagent.system.as_ref().and_then(|system| load_prompt(&mut loader, system, TextRole::System))
            {
                subagents.insert(name.value.clone(), system);
            }
        }
        let conditions = job.checks.iter().map(|check| check.when.as_ref());
        let conditions =
            conditions.map(|when| Some(loader.text(&when?.node, &when?.value, TextRole::Condition))).collect();
        let (templates, findings) = loader.finish();
        (Self { templates, prompt, system, subagents, conditions, variables: names }, findings)
    }
}

fn load_prompt(loader: &mut Loader<'_>, prompt: &Spanned<PromptText>, role: TextRole) -> Option<Template> {
    match &prompt.value {
        PromptText::Text(text) => Some(loader.text(&prompt.node, text, role)),
        // What stands in for a path that isn't there is said to be missing already.
        PromptText::File(file) if file.file.node.is_placeholder() => None,
        PromptText::File(file) => loader.file(&file.file.value, file.file.place(), role),
    }
}

/// The names that templates may use. They are taken from the file rather than from what could be made of it, so that
/// a mistake in an input's declaration isn't reported again wherever it is used.
fn template_variables(job: &Job, root: &Node) -> TemplateVariables {
    let mut names = TemplateVariables::default();
    let Some(inputs) = &job.inputs else {
        let is_meant = |key: &Node| key.text().is_some_and(|key| key_aliases::is_alias_of(key, "inputs"));
        let inputs_incomplete = root.is_incomplete() || root.entries().any(|(key, _)| is_meant(&key));
        return TemplateVariables { inputs_incomplete, ..names };
    };
    names.inputs_incomplete = inputs.node.is_incomplete();
    let kind = |kind| match kind {
        InputType::String | InputType::Path => ValueType::Text,
        InputType::Integer | InputType::Number => ValueType::Number,
        InputType::Boolean => ValueType::Boolean,
        InputType::List => ValueType::List,
    };
    let readable = job.inputs().filter(|(_, input)| !input.kind.node.is_placeholder());
    names.types = readable.map(|(name, input)| (name.value.clone(), kind(input.kind.value))).collect();
    match inputs.node.to_json() {
        Value::Object(declared) => {
            for (name, declaration) in declared {
                let is = |key: &str| declaration.get(key) == Some(&Value::Bool(true));
                if is("untrusted") {
                    names.untrusted.push(name.clone());
                }
                if is("secret") { names.secret.push(name) } else { names.inputs.push(name) }
            }
        }
        _ => names.inputs_incomplete = true,
    }
    names
}

/// A job's schemas, each of which stands alone.
#[derive(Debug, Default)]
pub struct Schemas {
    /// Of the parent's result.
    pub result: Option<Value>,
    /// Of what subagents return, by their names.
    pub returns: IndexMap<String, Value>,
    files: Vec<String>,
    sources: Vec<Arc<Source>>,
}

impl Schemas {
    /// Reads and checks all schemas of a job.
    pub(super) fn load(job: &Job, folder: Option<&JobDir>, findings: &mut Vec<Diagnostic>) -> Self {
        let mut reader = SchemaReader::new(folder);
        let result = job.result.as_ref().and_then(|result| reader.read(&result.schema));
        let mut returns = IndexMap::new();
        for (name, subagent) in &job.subagents {
            if let Some(schema) = subagent.returns.as_ref().and_then(|returns| reader.read(&returns.schema)) {
                returns.insert(name.value.clone(), schema);
            }
        }
        findings.extend(reader.take_findings());
        let files = reader.files().map(str::to_owned).collect();
        Self { result, returns, files, sources: reader.sources().cloned().collect() }
    }

    /// The files that they are made of, as paths from the job's folder.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// The same files, as they were read.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.iter()
    }
}

//! A job without errors, with its prompts and schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::context_files::AgentFiles;
use crate::diagnostic::{Diagnostic, Source};
use crate::job::{FILES_PART, InputType, Job, PromptText, name_from_file};
use crate::json_schema::{SchemaReader, enum_inputs};
use crate::mcp::ToolLock;
use crate::providers::user_servers::UserServers;
use crate::template::{JobDir, Loader, Template, TemplateVariables, Templates, TextRole, ValueType};
use crate::text::hex;
use crate::yaml::{Node, Spanned};

use super::host_lists::HostLists;
use super::key_aliases;

/// A job without errors, with its prompt files. Plans are made only from this, and only [`super::check`] makes it.
#[derive(Debug)]
pub struct ValidJob {
    name: String,
    job: Job,
    prompts: Prompts,
    schemas: Schemas,
    hosts: HostLists,
    files: AgentFiles,
    servers: UserServers,
    tool_lock: Option<ToolLock>,
}

/// The files that a job refers to.
#[derive(Debug)]
pub(super) struct LoadedFiles {
    pub(super) prompts: Prompts,
    pub(super) schemas: Schemas,
    pub(super) hosts: HostLists,
    /// Context files and skills.
    pub(super) files: AgentFiles,
    pub(super) tool_lock: Option<ToolLock>,
}

impl ValidJob {
    pub(super) fn new(source: &Arc<Source>, job: Job, loaded: LoadedFiles, servers: &UserServers) -> Option<Self> {
        let name = name_of(&job, source)?;
        let LoadedFiles { prompts, schemas, hosts, files, tool_lock } = loaded;
        Some(Self { name, job, prompts, schemas, hosts, files, servers: servers.clone(), tool_lock })
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the files that the job file names, by their paths from its folder: prompts, what they include,
    /// schemas, and files of hosts.
    pub fn file_digests(&self) -> BTreeMap<String, String> {
        let templates = self.prompts.templates.files().zip(self.prompts.templates.sources());
        let schemas = self.schemas.read.iter().map(|(path, source)| (path.as_str(), source));
        let digest = |source: &Arc<Source>| hex(&Sha256::digest(source.text.as_bytes()));
        let hosts = self.hosts.read.iter().map(|(path, source)| (path.as_str(), source));
        templates.chain(schemas).chain(hosts).map(|(path, source)| (path.to_owned(), digest(source))).collect()
    }

    /// The job as written in the file.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Its prompts and other templates.
    pub fn prompts(&self) -> &Prompts {
        &self.prompts
    }

    /// The schemas of its results.
    pub fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    /// Its lists of hosts.
    pub fn hosts(&self) -> &HostLists {
        &self.hosts
    }

    /// Its context files and skills.
    pub fn files(&self) -> &AgentFiles {
        &self.files
    }

    /// The user's own servers.
    pub fn servers(&self) -> &UserServers {
        &self.servers
    }

    /// The lock file of its tool servers, if there is one.
    pub fn tool_lock(&self) -> Option<&ToolLock> {
        self.tool_lock.as_ref()
    }
}

/// The job's name, by default made from its file's name.
pub(super) fn name_of(job: &Job, source: &Source) -> Option<String> {
    match &job.name {
        Some(name) => Some(name.value.clone()),
        None => name_from_file(&source.name),
    }
}

/// A job's prompts and other templates.
#[derive(Debug)]
pub struct Prompts {
    /// The templates themselves, with included files.
    pub templates: Templates,
    /// The parent's prompt; absent if its file can't be read.
    pub prompt: Option<Template>,
    /// The parent's own system prompt.
    pub system: Option<Template>,
    /// The subagents' own system prompts, by name.
    pub subagents: IndexMap<String, Template>,
    /// The `when` of each check, in the job's order.
    pub conditions: Vec<Option<Template>>,
    /// The condition `skip_if`.
    pub skip_if: Option<Template>,
    /// The variables of templates.
    pub variables: TemplateVariables,
}

impl Prompts {
    /// Reads and checks all templates of a job. `root`, its YAML, may hold what the decoded job lacks.
    pub(super) fn load(job: &Job, root: &Node, folder: Option<&JobDir>) -> (Self, Vec<Diagnostic>) {
        let names = template_variables(job, root);
        let mut loader = Loader::new(folder, &names);
        let prompt = load_prompt(&mut loader, &job.parent.prompt, TextRole::Prompt);
        let system = job.parent.system.as_ref().and_then(|system| load_prompt(&mut loader, system, TextRole::System));
        let subagents = job.subagents.iter().filter_map(|(name, subagent)| {
            let system = load_prompt(&mut loader, subagent.system.as_ref()?, TextRole::System)?;
            Some((name.value.clone(), system))
        });
        let subagents = subagents.collect();
        let conditions = job.checks.iter().map(|check| check.when.as_ref());
        let conditions =
            conditions.map(|when| Some(loader.text(&when?.node, &when?.value, TextRole::Condition))).collect();
        let skip_if = job.skip_if.as_ref();
        let skip_if = skip_if.map(|condition| loader.text(&condition.node, &condition.value, TextRole::Condition));
        let (templates, findings) = loader.finish();
        (Self { templates, prompt, system, subagents, conditions, skip_if, variables: names }, findings)
    }
}

fn load_prompt(loader: &mut Loader<'_>, prompt: &Spanned<PromptText>, role: TextRole) -> Option<Template> {
    match &prompt.value {
        PromptText::Text(text) => Some(loader.text(&prompt.node, text, role)),
        // The missing path is reported already.
        PromptText::File(file) if file.file.node.is_placeholder() => None,
        PromptText::File(file) => loader.file(&file.file.value, file.file.place(), role),
    }
}

/// The variables of templates. They are taken from the YAML, so that an error in an input's declaration isn't reported
/// again wherever the input is used.
fn template_variables(job: &Job, root: &Node) -> TemplateVariables {
    let mut names = TemplateVariables { has_state: root.get("state").is_some(), ..TemplateVariables::default() };
    if !job.before.is_empty() {
        let steps = job.before.iter().map(|step| &step.name);
        names.before =
            steps.clone().filter(|name| !name.node.is_placeholder()).map(|name| name.value.clone()).collect();
        names.before.push(FILES_PART.to_owned());
        names.before_incomplete = steps.clone().any(|name| name.node.is_placeholder());
    }
    names.before_incomplete |= root.get("before").is_some_and(|before| before.is_incomplete());
    let Some(inputs) = &job.inputs else {
        let is_meant = |key: &Node| key.text().is_some_and(|key| key_aliases::is_alias_of(key, "inputs"));
        let inputs_incomplete = root.is_incomplete() || root.entries().any(|(key, _)| is_meant(&key));
        return TemplateVariables { inputs_incomplete, ..names };
    };
    names.inputs_incomplete = inputs.node.is_incomplete();
    let kind = |kind| match kind {
        InputType::String | InputType::Path | InputType::Image => ValueType::Text,
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

/// A job's schemas, each without references to other files.
#[derive(Debug, Default)]
pub struct Schemas {
    /// The schema of the parent's result.
    pub result: Option<Value>,
    /// The schemas of subagents' results, by name.
    pub returns: IndexMap<String, Value>,
    /// The schemas of outputs' data, by name.
    pub outputs: IndexMap<String, Value>,
    /// The schemas of the steps before the agent, by name.
    pub before: IndexMap<String, Value>,
    /// The schema of the state.
    pub state: Option<Value>,
    /// The paths of their files from the job's folder.
    pub files: Vec<String>,
    /// The contents of their files.
    pub sources: Vec<Arc<Source>>,
    /// The same by the paths from the job's folder.
    read: Vec<(String, Arc<Source>)>,
}

impl Schemas {
    /// Reads and checks all schemas of a job.
    pub(super) fn load(
        job: &Job,
        folder: Option<&JobDir>,
        inputs: &TemplateVariables,
        findings: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut reader = SchemaReader::new(folder, inputs);
        let result = job.result.as_ref().and_then(|result| reader.read(&result.schema));
        let returns = job.subagents.iter().filter_map(|(name, subagent)| {
            Some((name.value.clone(), reader.read(&subagent.returns.as_ref()?.schema)?))
        });
        let returns = returns.collect();
        let outputs = job
            .outputs()
            .filter_map(|(name, output)| Some((name.value.clone(), reader.read(output.schema.as_ref()?)?)));
        let outputs = outputs.collect();
        let before =
            job.before.iter().filter_map(|step| Some((step.name.value.clone(), reader.read(step.schema.as_ref()?)?)));
        let before = before.collect();
        let state = job.state.as_ref().and_then(|state| reader.read(&state.value.schema));
        findings.append(&mut reader.findings);
        Self {
            result,
            returns,
            outputs,
            before,
            state,
            files: reader.paths(),
            read: reader.read_files(),
            sources: reader.sources,
        }
    }

    /// The inputs that their enums take values from.
    pub(super) fn used_inputs(&self) -> impl Iterator<Item = String> {
        let agents = self.result.iter().chain(self.returns.values());
        agents.chain(self.outputs.values()).chain(self.before.values()).chain(&self.state).flat_map(enum_inputs)
    }
}

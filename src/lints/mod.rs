//! Checks a job before it runs. A new lint is one file here and one line in [`LINTS`].

pub mod autofix;
mod before_steps;
mod changeable_context;
mod checks;
mod context_window;
mod cost;
mod default_render;
mod delegation;
mod empty_values;
mod env;
mod foreign_names;
mod hidden_characters;
mod host_lists;
mod hosts;
mod image_inputs;
mod inputs;
mod key_aliases;
mod key_hints;
mod lethal_trifecta;
mod lint;
mod model_options;
mod misread_texts;
mod models;
mod name_syntax;
mod not_templates;
mod numeric_underscores;
mod outputs;
mod protected_paths;
mod ranges;
mod script;
mod shell_syntax;
mod skill_tools;
mod state;
mod suppressions;
mod tool_aliases;
mod tool_servers;
mod tools;
mod untrusted_job;
mod unused;
mod valid_job;

use std::sync::Arc;

use crate::context_files::WorkspaceFiles;
use crate::diagnostic::{Diagnostic, OmittedFindings, Rule, Severity, Source, SourceSpan};
use crate::job::{self, Job};
use crate::mcp::ToolLock;
use crate::providers::replay;
use crate::providers::user_servers;
use crate::template::{self, JobDir};
use crate::yaml::{self, Decoded, Spanned};
use crate::{context_files, json_schema, toml_file};

pub use checks::{ambiguous_condition, condition_mistake, parse_condition};
pub use cost::{COST_WARNINGS, CostTracking, unknown_price};
pub use env::RECORD_KEY;
pub(crate) use env::provider_keys;
pub use host_lists::HostLists;
pub use lint::{Lint, LintContext, UserConfig};
pub use model_options::dropped_options;
pub use models::{model_argument, priced_provider, resolve, retirement, specs as model_specs};
pub use outputs::used_inputs as output_inputs;
pub use script::{check_script, startable_subagents, subagent_name};
use valid_job::LoadedFiles;
pub use valid_job::{Prompts, Schemas, ValidJob};

use lint::{MAX_FINDINGS, fix_place, join_names, listed_twice};

/// All lints.
pub static LINTS: &[Lint] = &[
    empty_values::LINT,
    name_syntax::LINT,
    inputs::LINT,
    models::LINT,
    model_options::LINT,
    default_render::LINT,
    tools::LINT,
    outputs::LINT,
    tool_servers::LINT,
    hosts::LINT,
    ranges::LINT,
    env::LINT,
    protected_paths::LINT,
    delegation::LINT,
    cost::LINT,
    unused::LINT,
    lethal_trifecta::LINT,
    numeric_underscores::LINT,
    untrusted_job::LINT,
    checks::LINT,
    before_steps::LINT,
    state::LINT,
    context_window::LINT,
    shell_syntax::LINT,
    not_templates::LINT,
    changeable_context::LINT,
    skill_tools::LINT,
    hidden_characters::LINT,
    image_inputs::LINT,
    misread_texts::LINT,
];

/// All rules of all files that are checked.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let of_files = [
        yaml::RULES,
        toml_file::RULES,
        template::RULES,
        json_schema::RULES,
        job::RULES,
        replay::RULES,
        user_servers::RULES,
    ];
    let others = of_files.into_iter().chain([crate::tools::RULES, context_files::RULES, suppressions::RULES]);
    LINTS.iter().map(|lint| lint.rules).chain(others).flatten()
}

/// The result of checking a job.
#[derive(Debug)]
pub struct LintReport {
    /// All findings, sorted by place: those in the job file first, then those in prompt files.
    pub findings: Vec<Diagnostic>,
    /// The job, if no finding is an error.
    pub job: Option<ValidJob>,
    /// The names of the prompt and schema files that were read.
    pub prompts: Vec<String>,
}

/// Reads a job and checks everything that can be known before a run. Reads prompt files below `folder`, which is the job
/// file's, and uses no network and no configuration of the user.
pub fn check(source: &Arc<Source>, folder: Option<&JobDir>) -> LintReport {
    check_with(source, folder, JobTrust::Trusted, &UserConfig::default())
}

/// Where a job comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTrust {
    /// From people who may change what runs here anyway.
    Trusted,
    /// From anyone else, such as with a pull request.
    Untrusted,
}

impl JobTrust {
    /// Untrusted if `--untrusted` was given.
    pub fn from_untrusted_flag(untrusted: bool) -> Self {
        if untrusted { Self::Untrusted } else { Self::Trusted }
    }
}

/// Like [`check`], with the user's configuration. An untrusted job may not use everything that a trusted one may.
pub fn check_with(
    source: &Arc<Source>,
    folder: Option<&JobDir>,
    origin: JobTrust,
    user_config: &UserConfig,
) -> LintReport {
    check_in(source, folder, origin, user_config, None)
}

/// Like [`check_with`], with the context files and skills of a workspace. Without one, plans have none.
pub fn check_in(
    source: &Arc<Source>,
    folder: Option<&JobDir>,
    origin: JobTrust,
    user_config: &UserConfig,
    workspace: Option<&WorkspaceFiles>,
) -> LintReport {
    let Decoded { value, mut findings, gaps: holes } = yaml::read_with::<Spanned<Job>>(source, &key_hints::JOB_HINTS);
    let Some(Spanned { value: job, node: root }) = value else {
        return LintReport { findings, job: None, prompts: Vec::new() };
    };
    let (mut prompts, found) = Prompts::load(&job, &root, folder);
    let mut semantic = found;
    let schemas = Schemas::load(&job, folder, &prompts.variables, &mut semantic);
    let of_outputs = outputs::used_inputs(&job).into_iter();
    schemas.used_inputs().chain(of_outputs).for_each(|name| prompts.templates.used_inputs.add(&name));
    // An untrusted job may not read commits, which is reported, and git isn't started for it.
    let untrusted_workspace = workspace
        .filter(|_| origin == JobTrust::Untrusted)
        .map(|workspace| WorkspaceFiles { ignores_references: true, ..workspace.clone() });
    let hosts = HostLists::load(&job, folder, &mut semantic);
    let files = context_files::load(&job, untrusted_workspace.as_ref().or(workspace), &mut semantic);
    let has_servers = !job.mcp.is_empty() && !user_config.skips_tool_lock;
    let tool_lock = folder.filter(|_| has_servers).and_then(|folder| ToolLock::read(&source.name, folder));
    let subject = LintContext {
        source,
        root: &root,
        job: &job,
        folder,
        prompts: &prompts,
        schemas: &schemas,
        hosts: &hosts,
        files: &files,
        reported: &findings,
        is_complete: holes.is_empty(),
        is_untrusted: origin == JobTrust::Untrusted,
        user_config,
        tool_lock: tool_lock.as_ref().map(Result::as_ref),
    };
    for lint in LINTS {
        (lint.check)(&subject, &mut semantic);
    }
    semantic.retain(|finding| !holes.iter().any(|hole| finding.span.overlaps(hole)));
    findings.extend(semantic);
    remove_consequences_of_tags(&mut findings);
    suppressions::apply(source, &rules().collect::<Vec<_>>(), &mut findings);
    sort(&mut findings, source);
    truncate_findings(&mut findings);
    let broken = !holes.is_empty() || findings.iter().any(|finding| finding.severity == Severity::Error);
    let read = prompts
        .templates
        .sources()
        .chain(&schemas.sources)
        .chain(hosts.read.iter().map(|(_, source)| source))
        .map(|source| source.name.clone())
        .collect();
    let job = if broken {
        None
    } else {
        let loaded = LoadedFiles { prompts, schemas, hosts, files, tool_lock: tool_lock.and_then(Result::ok) };
        ValidJob::new(source, job, loaded, &user_config.servers)
    };
    LintReport { findings, job, prompts: read }
}

/// Removes what is wrong with a value only because YAML takes the start of its text for a tag.
fn remove_consequences_of_tags(findings: &mut Vec<Diagnostic>) {
    let tags = findings.iter().filter(|finding| finding.code == "unknown-tag").map(|finding| finding.span.clone());
    let tags: Vec<SourceSpan> = tags.collect();
    let follows = |span: &SourceSpan, tag: &SourceSpan| {
        let SourceSpan { source, range } = tag;
        let gap = source.text.get(range.end..span.range.start);
        Arc::ptr_eq(source, &span.source)
            && (gap.is_some_and(|gap| gap.trim().is_empty() && !gap.contains('\n'))
                || range.contains(&span.range.start))
    };
    findings.retain(|finding| finding.code == "unknown-tag" || !tags.iter().any(|tag| follows(&finding.span, tag)));
}

/// Keeps the first [`MAX_FINDINGS`], and one more that counts the rest, with those that were omitted before. That one is
/// an error: a job with so many warnings shouldn't run.
fn truncate_findings(findings: &mut Vec<Diagnostic>) {
    let mut unshown = OmittedFindings::default();
    let mut place = None;
    findings.retain(|finding| {
        if finding.omitted.is_some() {
            unshown.add(finding);
            place.get_or_insert(finding.span.clone());
        }
        finding.omitted.is_none()
    });
    // A single further finding takes no more room than a message about it.
    let most = MAX_FINDINGS + usize::from(unshown == OmittedFindings::default());
    if findings.len() > most {
        place = Some(findings[MAX_FINDINGS].span.clone());
        findings.iter().skip(MAX_FINDINGS).for_each(|finding| unshown.add(finding));
        findings.truncate(MAX_FINDINGS);
    }
    if let Some(place) = place {
        findings.push(unshown.to_diagnostic(place));
    }
}

/// Sorts by place; findings in `first` come before those in other files.
fn sort(findings: &mut [Diagnostic], first: &Arc<Source>) {
    findings.sort_by_cached_key(|finding| {
        let SourceSpan { source, range } = &finding.span;
        let file = if Arc::ptr_eq(source, first) { String::new() } else { source.name.clone() };
        (file, range.start, range.end, finding.severity)
    });
}

#[cfg(test)]
mod tests;

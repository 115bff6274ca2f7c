//! What must hold before a job may run. A new lint is one file here and one line in [`LINTS`].

pub mod autofix;
mod blank_prompts;
mod checks;
mod context_window;
mod cost_limit;
mod default_render;
mod delegation;
mod empty_values;
mod env;
mod inputs;
mod key_aliases;
mod key_hints;
mod lethal_trifecta;
mod misplaced_keys;
mod model_options;
mod models;
mod name_syntax;
mod not_templates;
mod numeric_underscores;
mod protected_paths;
mod ranges;
mod retired_models;
mod schemas;
mod script;
mod shell_syntax;
mod suppressions;
mod tool_aliases;
mod tools;
mod unknown_prices;
mod unknown_tools;
mod untrusted_job;
mod unused_grants;
mod unused_inputs;
mod valid_job;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, OmittedFindings, Rule, Severity, Source, SourceSpan};
use crate::job::{self, Job};
use crate::pricing::Prices;
use crate::providers::replay;
use crate::providers::user_servers::{self, UserServers};
use crate::template::{self, JobDir};
use crate::yaml::{self, Decoded, Node, Spanned};
use crate::{json_schema, toml_file};

pub use checks::{ambiguous_condition, parse_condition};
pub use cost_limit::COST_WARNINGS;
pub use env::RECORD_KEY;
pub(crate) use env::provider_keys;
pub use model_options::dropped_options;
pub use models::{model_argument, priced_provider, resolve};
pub use retired_models::retirement;
pub use schemas::Schemas;
pub use script::check_script;
pub use unknown_prices::{CostTracking, unknown_price};
pub use valid_job::{CheckTemplates, Prompts, ValidJob};

/// One thing to look after in a job.
pub trait Lint: Sync {
    /// What it can find, beside what is wrong with a tool's options.
    fn rules(&self) -> &'static [Rule];

    /// Looks at a job and reports what is wrong. Parts of it may be made up, where the file couldn't be read: findings
    /// there are dropped.
    fn check(&self, subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>);
}

/// All lints.
pub static LINTS: &[&dyn Lint] = &[
    &empty_values::EmptyValues,
    &name_syntax::NameSyntax,
    &inputs::Inputs,
    &models::Models,
    &retired_models::RetiredModels,
    &model_options::ModelOptionsLint,
    &blank_prompts::BlankPrompts,
    &default_render::DefaultRender,
    &tools::Tools,
    &ranges::Ranges,
    &unknown_prices::UnknownPrices,
    &env::Env,
    &protected_paths::ProtectedPaths,
    &delegation::Delegation,
    &cost_limit::CostLimit,
    &unused_inputs::UnusedInputs,
    &lethal_trifecta::LethalTrifecta,
    &numeric_underscores::NumericUnderscores,
    &untrusted_job::UntrustedJob,
    &checks::Checks,
    &context_window::ContextWindow,
    &unused_grants::UnusedGrants,
    &not_templates::NotTemplates,
    &shell_syntax::ShellSyntax,
];

/// Everything that checking a file can find.
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
    let beside = of_files.into_iter().chain([crate::tools::RULES, suppressions::RULES]);
    LINTS.iter().map(|lint| lint.rules()).chain(beside).flatten()
}

/// How many findings are shown; one more says how many there are beyond.
const MAX_FINDINGS: usize = 100;

/// What lints look at.
#[derive(Debug)]
pub struct LintContext<'a> {
    /// The job file.
    pub source: &'a Arc<Source>,
    /// The same as YAML.
    pub root: &'a Node,
    /// The job; partial where the file has mistakes.
    pub job: &'a Job,
    /// Its texts, read and checked.
    pub prompts: &'a Prompts,
    /// What reading the file found.
    pub reported: &'a [Diagnostic],
    /// Whether everything that the file says is in the job. Where it isn't, nothing can be said to be unused.
    pub is_complete: bool,
    /// Whether it comes from somebody who isn't trusted.
    pub is_untrusted: bool,
    /// What the user's own configuration says.
    pub user_config: &'a UserConfig,
}

/// What came of checking a job.
#[derive(Debug)]
pub struct LintReport {
    /// All findings, sorted by place: those in the job file first, then those in prompt files.
    pub findings: Vec<Diagnostic>,
    /// The job, where no finding is an error.
    pub job: Option<ValidJob>,
    /// The names of the prompt files, and of the files with schemas, that were read.
    pub prompts: Vec<String>,
}

/// Reads a job and checks everything that can be known before a run. Reads prompt files below `folder`, the job file's
/// own; contacts nobody. There are no servers of the user's own.
pub fn check(source: &Arc<Source>, folder: Option<&JobDir>) -> LintReport {
    check_with(source, folder, JobTrust::Trusted, &UserConfig::default())
}

/// Where a job comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTrust {
    /// From those who may change what is run here anyway.
    Trusted,
    /// From somebody else, such as with a pull request.
    Untrusted,
}

impl JobTrust {
    /// A stranger's where `--untrusted` was said.
    pub fn from_untrusted_flag(untrusted: bool) -> Self {
        if untrusted { Self::Untrusted } else { Self::Trusted }
    }
}

/// What the user's own configuration says.
#[derive(Debug, Clone, Default)]
pub struct UserConfig {
    /// The servers that it names.
    pub servers: UserServers,
    /// What models cost.
    pub prices: Prices,
    /// The providers, and servers of the user's own, that are asked on this machine.
    pub local_providers: BTreeSet<String>,
}

/// As [`check`]; one from a stranger is refused what only those get who are trusted. `own` is the user's.
pub fn check_with(source: &Arc<Source>, folder: Option<&JobDir>, origin: JobTrust, own: &UserConfig) -> LintReport {
    let Decoded { value, mut findings, gaps: holes } =
        yaml::read_with::<Spanned<Job>>(source, key_aliases::KEY_ALIASES);
    let Some(Spanned { value: job, node: root }) = value else {
        return LintReport { findings, job: None, prompts: Vec::new() };
    };
    key_hints::refine_findings(&root, &mut findings);
    misplaced_keys::refine_findings(&root, &mut findings);
    let (prompts, found) = Prompts::load(&job, &root, folder);
    let mut semantic = found;
    let schemas = Schemas::load(&job, folder, &mut semantic);
    let subject = LintContext {
        source,
        root: &root,
        job: &job,
        prompts: &prompts,
        reported: &findings,
        is_complete: holes.is_empty(),
        is_untrusted: origin == JobTrust::Untrusted,
        user_config: own,
    };
    for lint in LINTS {
        lint.check(&subject, &mut semantic);
    }
    semantic.retain(|finding| !holes.iter().any(|hole| overlap(&finding.span, hole)));
    findings.extend(semantic);
    suppressions::apply(source, &mut findings);
    sort(&mut findings, source);
    truncate_findings(&mut findings);
    let broken = !holes.is_empty() || findings.iter().any(|finding| finding.severity == Severity::Error);
    let read = prompts.templates.sources().chain(schemas.sources()).map(|source| source.name.clone()).collect();
    let job = if broken { None } else { ValidJob::new(source, job, prompts, schemas, &own.servers) };
    LintReport { findings, job, prompts: read }
}

fn overlap(one: &SourceSpan, other: &SourceSpan) -> bool {
    let inside = |inner: &SourceSpan, outer: &SourceSpan| {
        inner.range.start >= outer.range.start && inner.range.end <= outer.range.end
    };
    Arc::ptr_eq(&one.source, &other.source) && (inside(one, other) || inside(other, one))
}

/// Leaves the first [`MAX_FINDINGS`], and a last one that counts all beyond them, those included that were left out
/// before. That one is an error: nobody should trust a job with so many warnings.
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
    // One more takes no more room than to say that there is one more.
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

/// By place, what lies in `first` before what lies elsewhere.
fn sort(findings: &mut [Diagnostic], first: &Arc<Source>) {
    findings.sort_by(|a, b| {
        let key = |finding: &Diagnostic| {
            let SourceSpan { source, range: span } = &finding.span;
            let elsewhere = if Arc::ptr_eq(source, first) { String::new() } else { source.name.clone() };
            (elsewhere, span.start, span.end, finding.severity)
        };
        key(a).cmp(&key(b))
    });
}

/// What a fix replaces of a text, so that its quotes stay as they are; of an alias, the alias.
fn fix_place(node: &Node) -> SourceSpan {
    let whole = node.place();
    match whole.source.text[whole.range.clone()].starts_with('*') {
        true => whole,
        false => node.content_place(),
    }
}

/// A few names in a sentence: `a`, `b` and `c`.
fn join_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests;

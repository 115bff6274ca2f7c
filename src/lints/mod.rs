//! What must hold before a job may run. A new lint is one file here and one line in [`LINTS`].

mod advice;
mod allow;
mod checks;
mod delegation;
mod elsewhere;
mod empty;
mod env;
mod grants;
mod inputs;
mod lethal;
mod levels;
pub mod mend;
mod models;
mod names;
mod not_templates;
mod numbers;
mod options;
mod price;
mod prompts;
mod protect;
mod rendered;
mod retired;
mod schemas;
mod script;
mod shell_syntax;
mod spending;
mod strange;
mod strangers;
mod synonyms;
mod tools;
mod underscores;
mod unused;
mod valid;
mod window;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::data;
use crate::diagnostic::{Diagnostic, Place, Rule, Severity, Source, Unshown};
use crate::job::{self, Job};
use crate::price::Prices;
use crate::providers::named::{self, Servers};
use crate::providers::replay;
use crate::template::{self, Folder};
use crate::toml_file;
use crate::yaml::{self, Decoded, Node, Spanned};

pub use checks::{truth, unclear};
pub use env::RECORD_KEY;
pub(crate) use env::provider_keys;
pub use models::{model_argument, resolve, unknown_provider};
pub use options::left_behind;
pub use price::{Countable, unpriced};
pub use retired::retirement;
pub use schemas::Schemas;
pub use script::check_script;
pub use spending::COST_WARNINGS;
pub use valid::{CheckTexts, Prompts, ValidJob};

/// One thing to look after in a job.
pub trait Lint: Sync {
    /// What it can find, beside what is wrong with a tool's options.
    fn rules(&self) -> &'static [Rule];

    /// Looks at a job and reports what is wrong. Parts of it may be made up, where the file couldn't be read: findings
    /// there are dropped.
    fn check(&self, subject: &Subject<'_>, findings: &mut Vec<Diagnostic>);
}

/// All lints.
pub static LINTS: &[&dyn Lint] = &[
    &empty::Empty,
    &names::Names,
    &inputs::Inputs,
    &models::Models,
    &retired::RetiredModels,
    &options::Options,
    &prompts::Blank,
    &rendered::Rendered,
    &tools::Tools,
    &numbers::Numbers,
    &price::Price,
    &env::Env,
    &protect::Protect,
    &delegation::Delegation,
    &spending::Spending,
    &unused::Unused,
    &lethal::Lethal,
    &underscores::Underscores,
    &strangers::Strangers,
    &checks::Checks,
    &window::Window,
    &grants::Grants,
    &not_templates::NotTemplates,
    &shell_syntax::ShellSyntax,
];

/// Everything that checking a file can find.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let of_files =
        [yaml::RULES, toml_file::RULES, template::RULES, data::RULES, job::RULES, replay::RULES, named::RULES];
    let beside = of_files.into_iter().chain([crate::tools::RULES, allow::RULES]);
    LINTS.iter().map(|lint| lint.rules()).chain(beside).flatten()
}

/// How many findings are shown; one more says how many there are beyond.
const MAX_FINDINGS: usize = 100;

/// What lints look at.
#[derive(Debug)]
pub struct Subject<'a> {
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
    pub whole: bool,
    /// Whether it comes from somebody who isn't trusted.
    pub is_strangers: bool,
    /// What the user's own configuration says.
    pub own: &'a Own,
}

/// What came of checking a job.
#[derive(Debug)]
pub struct Checked {
    /// All findings, sorted by place: those in the job file first, then those in prompt files.
    pub findings: Vec<Diagnostic>,
    /// The job, where no finding is an error.
    pub job: Option<ValidJob>,
    /// The names of the prompt files, and of the files with schemas, that were read.
    pub prompts: Vec<String>,
}

/// Reads a job and checks everything that can be known before a run. Reads prompt files below `folder`, the job file's
/// own; contacts nobody. There are no servers of the user's own.
pub fn check(source: &Arc<Source>, folder: Option<&Folder>) -> Checked {
    check_from(source, folder, Origin::Trusted, &Own::default())
}

/// Where a job comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From those who may change what is run here anyway.
    Trusted,
    /// From somebody else, such as with a pull request.
    Stranger,
}

impl Origin {
    /// A stranger's where `--untrusted` was said.
    pub fn from(untrusted: bool) -> Self {
        if untrusted { Self::Stranger } else { Self::Trusted }
    }
}

/// What the user's own configuration says.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// The servers that it names.
    pub servers: Servers,
    /// What models cost.
    pub prices: Prices,
    /// The providers, and servers of the user's own, that are asked on this machine.
    pub here: BTreeSet<String>,
}

/// As [`check`]; one from a stranger is refused what only those get who are trusted. `own` is the user's.
pub fn check_from(source: &Arc<Source>, folder: Option<&Folder>, origin: Origin, own: &Own) -> Checked {
    let Decoded { value, mut findings, holes } = yaml::read_with::<Spanned<Job>>(source, synonyms::SYNONYMS);
    let Some(Spanned { value: job, node: root }) = value else {
        return Checked { findings, job: None, prompts: Vec::new() };
    };
    advice::improve(&root, &mut findings);
    levels::improve(&root, &mut findings);
    let (prompts, found) = Prompts::load(&job, &root, folder);
    let mut semantic = found;
    let schemas = Schemas::load(&job, folder, &mut semantic);
    let subject = Subject {
        source,
        root: &root,
        job: &job,
        prompts: &prompts,
        reported: &findings,
        whole: holes.is_empty(),
        is_strangers: origin == Origin::Stranger,
        own,
    };
    for lint in LINTS {
        lint.check(&subject, &mut semantic);
    }
    semantic.retain(|finding| !holes.iter().any(|hole| overlap(&finding.place, hole)));
    findings.extend(semantic);
    allow::apply(source, &mut findings);
    sort(&mut findings, source);
    bound(&mut findings);
    let broken = !holes.is_empty() || findings.iter().any(|finding| finding.severity == Severity::Error);
    let read = prompts.templates.sources().chain(schemas.sources()).map(|source| source.name.clone()).collect();
    let job = if broken { None } else { ValidJob::new(source, job, prompts, schemas, &own.servers) };
    Checked { findings, job, prompts: read }
}

fn overlap(one: &Place, other: &Place) -> bool {
    let inside =
        |inner: &Place, outer: &Place| inner.span.start >= outer.span.start && inner.span.end <= outer.span.end;
    Arc::ptr_eq(&one.source, &other.source) && (inside(one, other) || inside(other, one))
}

/// Leaves the first [`MAX_FINDINGS`], and a last one that counts all beyond them, those included that were left out
/// before. That one is an error: nobody should trust a job with so many warnings.
fn bound(findings: &mut Vec<Diagnostic>) {
    let mut unshown = Unshown::default();
    let mut place = None;
    findings.retain(|finding| {
        if finding.unshown.is_some() {
            unshown.add(finding);
            place.get_or_insert(finding.place.clone());
        }
        finding.unshown.is_none()
    });
    // One more takes no more room than to say that there is one more.
    let most = MAX_FINDINGS + usize::from(unshown == Unshown::default());
    if findings.len() > most {
        place = Some(findings[MAX_FINDINGS].place.clone());
        findings.iter().skip(MAX_FINDINGS).for_each(|finding| unshown.add(finding));
        findings.truncate(MAX_FINDINGS);
    }
    if let Some(place) = place {
        findings.push(unshown.finding(place));
    }
}

/// By place, what lies in `first` before what lies elsewhere.
fn sort(findings: &mut [Diagnostic], first: &Arc<Source>) {
    findings.sort_by(|a, b| {
        let key = |finding: &Diagnostic| {
            let Place { source, span } = &finding.place;
            let elsewhere = if Arc::ptr_eq(source, first) { String::new() } else { source.name.clone() };
            (elsewhere, span.start, span.end, finding.severity)
        };
        key(a).cmp(&key(b))
    });
}

/// What a fix replaces of a text, so that its quotes stay as they are; of an alias, the alias.
fn inside(node: &Node) -> Place {
    let whole = node.place();
    match whole.source.text[whole.span.clone()].starts_with('*') {
        true => whole,
        false => node.inside(),
    }
}

/// A few names in a sentence: `a`, `b` and `c`.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests;

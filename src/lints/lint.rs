//! The type of lints, what they look at, and small helpers that they share.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::context_files::AgentFiles;
use crate::diagnostic::{Diagnostic, Rule, Severity, Source, SourceSpan};
use crate::job::Job;
use crate::mcp::ToolLock;
use crate::pricing::Prices;
use crate::providers::user_servers::UserServers;
use crate::template::JobDir;
use crate::yaml::Node;

use super::host_lists::HostLists;
use super::valid_job::{Prompts, Schemas};

/// A check of a job.
#[derive(Debug)]
pub struct Lint {
    /// The rules that it can report.
    pub rules: &'static [Rule],
    /// Checks a job and reports what is wrong. Parts of the job that couldn't be read have placeholders: findings about
    /// them are dropped.
    pub check: fn(&LintContext<'_>, &mut Vec<Diagnostic>),
}

/// How many findings are shown; one more counts the rest.
pub(super) const MAX_FINDINGS: usize = 100;

/// The job that lints check, with its surroundings.
#[derive(Debug)]
pub struct LintContext<'a> {
    /// The job file.
    pub source: &'a Arc<Source>,
    /// The root of its YAML.
    pub root: &'a Node,
    /// The job; partial if the file has mistakes.
    pub job: &'a Job,
    /// The folder of its file, if it has one.
    pub folder: Option<&'a JobDir>,
    /// Its prompts and other templates, read and checked.
    pub prompts: &'a Prompts,
    /// Its valid schemas.
    pub schemas: &'a Schemas,
    /// Its valid lists of hosts.
    pub hosts: &'a HostLists,
    /// Its context files and skills; empty if there is no workspace to read them in.
    pub files: &'a AgentFiles,
    /// The findings of reading the file.
    pub reported: &'a [Diagnostic],
    /// Whether the whole file could be read. If not, nothing can be reported as unused.
    pub is_complete: bool,
    /// Whether `--untrusted` was given.
    pub is_untrusted: bool,
    /// The user's own configuration.
    pub user_config: &'a UserConfig,
    /// The lock file of the tool servers, or why it can't be used; `None` if there is none.
    pub tool_lock: Option<Result<&'a ToolLock, &'a String>>,
}

/// The user's own configuration.
#[derive(Debug, Clone, Default)]
pub struct UserConfig {
    /// The user's own servers.
    pub servers: UserServers,
    /// The prices of models.
    pub prices: Prices,
    /// The providers and own servers that run on this machine.
    pub local_providers: BTreeSet<String>,
    /// Whether the lock file of the job's tool servers is ignored, because it is about to be written.
    pub skips_tool_lock: bool,
}

/// The finding for an entry that is in its list twice.
pub(super) fn listed_twice(
    severity: Severity,
    code: &'static str,
    text: &str,
    place: SourceSpan,
    first: SourceSpan,
) -> Diagnostic {
    let finding = Diagnostic::error(code, place, format!("`{text}` is listed twice")).label(first, "first here");
    Diagnostic { severity, ..finding.help("remove one of the two") }
}

/// The place that a fix of a text replaces: the text within its quotes, or the alias that refers to it.
pub(super) fn fix_place(node: &Node) -> SourceSpan {
    let whole = node.place();
    match whole.source.text[whole.range.clone()].starts_with('*') {
        true => whole,
        false => node.content_place(),
    }
}

/// Lists names in a sentence: `a`, `b` and `c`.
pub(super) fn join_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "none".to_owned(),
    }
}

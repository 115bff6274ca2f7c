//! The outputs of a job, resolved: which kinds there are, and what the job allows of each.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::trigger::Trigger;

/// What a job allows its agents to propose. It is a part of the plan, and `legwork publish` makes it again from the job file in
/// its own checkout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outputs {
    /// What started the run; `None` if nothing is known about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// The outputs by their names, in the job's order. The name is that of the tool.
    pub allowed: IndexMap<String, Output>,
    /// What holds for all of them.
    #[serde(default)]
    pub rules: Rules,
    /// The lists that a trusted step before the agent prints: the name of the step, by the place of the list (`labels.add`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub from_steps: BTreeMap<String, String>,
}

impl Outputs {
    /// Whether an output takes binary files, which are then a part of the run's patch.
    pub fn take_binary(&self) -> bool {
        self.allowed.values().filter_map(|output| output.kind.patch_rules()).any(|rules| rules.binary)
    }
}

/// What holds for all outputs of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rules {
    /// The logins that texts may mention, without `@`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
    /// The hosts that texts may link to, in addition to the forge's own repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Whether a run that proposes nothing, and doesn't say that there is nothing to do, is incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

impl Rules {
    /// What the model should know about texts before it writes them.
    pub fn describe(&self) -> String {
        let list = |items: &[String], none: &str, some: &str| match items {
            [] => none.to_owned(),
            items => format!("{some} {}", items.join(", ")),
        };
        format!(
            " Texts are Markdown without HTML and images, {}, and {}; code spans and blocks may have anything.",
            list(&self.links, "with links only to this repository", "with links only to this repository and"),
            list(&self.mentions, "without mentions (@name)", "with mentions only of"),
        )
    }
}

/// One output of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// What it is, with the settings of its kind.
    #[serde(rename = "settings")]
    pub kind: Kind,
    /// What it is for; `None` for kinds that have no issue or pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// How many can be accepted in a run. For `labels`, how many labels are added and removed together.
    pub max: u32,
    /// Whether a run whose checks failed may publish it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_checks_failed: bool,
}

/// The issue or pull request that an output is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// That of the event which started the run.
    Trigger,
    /// Any: the model gives the number.
    Any,
    /// This one.
    Number(u64),
}

/// The kinds of outputs with their settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// A comment.
    Comment {
        /// Whether it edits the comment of earlier runs with the same key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        update: bool,
        /// Whether its text may close the trigger's issue with a keyword.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        closes: bool,
    },
    /// A review of a pull request, with comments on lines.
    Review {
        /// The most comments on lines.
        max_comments: u32,
        /// Whether it requests changes instead of only commenting.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        request_changes: bool,
    },
    /// The run's own changes as a pull request.
    PullRequest {
        /// What its title begins with.
        #[serde(default)]
        title_prefix: String,
        /// The labels that it gets.
        #[serde(default)]
        labels: Vec<String>,
        /// Whether it is a draft.
        #[serde(default)]
        draft: bool,
        /// Whether it replaces that of earlier runs with the same key.
        #[serde(default)]
        update: bool,
        /// Whether its text may close the trigger's issue with a keyword.
        #[serde(default)]
        closes: bool,
        /// What the changes may contain.
        patch: PatchRules,
    },
    /// The run's own changes as a commit on the trigger's branch.
    Push {
        /// What the changes may contain.
        patch: PatchRules,
    },
    /// A new issue.
    Issue {
        /// What its title begins with.
        #[serde(default)]
        title_prefix: String,
        /// The labels that it always gets.
        #[serde(default)]
        labels: Vec<String>,
        /// The labels that the model can choose from.
        #[serde(default)]
        choose: Vec<String>,
    },
    /// Labels of an issue or pull request.
    Labels {
        /// Those that can be added.
        #[serde(default)]
        add: Vec<String>,
        /// Those that can be removed.
        #[serde(default)]
        remove: Vec<String>,
    },
    /// Closes an issue.
    Close {},
    /// A check run, or a commit status.
    Check {
        /// Its name on the forge.
        check_name: String,
    },
    /// A command that `publish` runs in its checkout.
    Command {
        /// The script.
        run: String,
        /// JSON Schema of its data.
        schema: Value,
        /// The environment variables that it sees.
        #[serde(default)]
        env: Vec<String>,
        /// Whether it may run again if it was killed in the middle.
        #[serde(default)]
        repeatable: bool,
        /// Its time limit in milliseconds.
        timeout_ms: u64,
    },
}

/// What the changes of a run may contain to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatchRules {
    /// Globs of the files that may change; empty for all.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The most files.
    pub max_files: u32,
    /// The longest patch in bytes.
    pub max_bytes: u64,
    /// Whether binary files may change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// Paths that are protected by default and may change, as in the job's `allow_changes`.
    #[serde(default)]
    pub allow_changes: Vec<String>,
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $has_target:literal, $has_patch:literal, $keys:expr;)*) => {
        /// The name of a kind of outputs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum KindName {
            $($(#[doc = $doc])* #[serde(rename = $name)] $variant,)*
        }

        /// All kinds, in the order of the book.
        pub const KINDS: &[KindName] = &[$(KindName::$variant,)*];

        impl KindName {
            /// The name as a job writes it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The kind with this name.
            pub fn named(name: &str) -> Option<Self> {
                KINDS.iter().find(|kind| kind.name() == name).copied()
            }

            /// Whether such an output is for an issue or a pull request.
            pub fn has_target(self) -> bool {
                match self { $(Self::$variant => $has_target,)* }
            }

            /// The keys that a job can give it, in addition to `kind`, `max` and `on`.
            pub fn keys(self) -> &'static [&'static str] {
                match self { $(Self::$variant => $keys,)* }
            }

            /// Whether it is the run's own changes.
            pub fn has_patch(self) -> bool {
                match self { $(Self::$variant => $has_patch,)* }
            }
        }

        impl Kind {
            /// Its name.
            pub fn name(&self) -> KindName {
                match self { $(Self::$variant { .. } => KindName::$variant,)* }
            }
        }
    };
}

kinds! {
    /// A comment on an issue or a pull request.
    Comment = "comment", true, false, &["target", "optional", "update", "closes"];
    /// A review of a pull request.
    Review = "review", true, false, &["target", "optional", "max_comments", "event"];
    /// A pull request with the run's changes.
    PullRequest = "pull_request", false, true, &["title_prefix", "labels", "draft", "update", "closes", "paths", "max_files", "max_bytes", "binary"];
    /// A commit with the run's changes on the trigger's branch.
    Push = "push", false, true, &["optional", "paths", "max_files", "max_bytes", "binary"];
    /// A new issue.
    Issue = "issue", false, false, &["title_prefix", "labels", "choose"];
    /// Labels that are added and removed.
    Labels = "labels", true, false, &["target", "optional", "add", "remove"];
    /// The end of an issue.
    Close = "close", true, false, &["target", "optional"];
    /// A check run.
    Check = "check", false, false, &["name"];
    /// A command of the job.
    Command = "command", false, false, &["run", "schema", "env", "repeatable", "timeout"];
}

impl Kind {
    /// The rules for the run's changes, for kinds that publish them.
    pub fn patch_rules(&self) -> Option<&PatchRules> {
        match self {
            Self::PullRequest { patch, .. } | Self::Push { patch } => Some(patch),
            _ => None,
        }
    }

    /// Whether a text may close the trigger's issue with a keyword.
    pub fn closes(&self) -> bool {
        matches!(self, Self::Comment { closes: true, .. } | Self::PullRequest { closes: true, .. })
    }
}

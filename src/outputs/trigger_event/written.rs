//! A trigger as an event file, for test cases that are made from runs.

use serde_json::{Map, Value, json};

use crate::outputs::trigger::{Branch, Forge, Subject, Trigger};

impl Trigger {
    /// An event of which this is the trigger: what GitHub writes for a workflow, or the body of a webhook of GitLab. On GitLab, the
    /// branch that a merge request is for isn't in it, and the server is that of the reader.
    pub fn to_event(&self) -> Value {
        match self.forge {
            Forge::Github => self.to_github_event(),
            Forge::Gitlab => self.to_webhook(),
        }
    }

    fn to_github_event(&self) -> Value {
        let page = format!("{}/{}", self.server.trim_end_matches('/'), self.repository);
        let mut event = Map::new();
        event.insert("repository".to_owned(), json!({ "full_name": self.repository, "html_url": page }));
        let branch = |branch: &Branch| {
            let repository = branch.repository.as_ref().map(|name| json!({ "full_name": name }));
            json!({ "ref": branch.name, "sha": branch.sha, "repo": repository })
        };
        let (head, base) = (self.head.as_ref(), self.base.as_ref());
        match (self.subject, self.number) {
            (Subject::PullRequest, Some(number)) if head.is_none() && base.is_none() => {
                event.insert("issue".to_owned(), json!({ "number": number, "pull_request": {} }));
            }
            (Subject::PullRequest, Some(number)) => {
                let pull = json!({ "number": number, "head": head.map(branch), "base": base.map(branch) });
                event.insert("pull_request".to_owned(), pull);
            }
            (Subject::Issue, Some(number)) => drop(event.insert("issue".to_owned(), json!({ "number": number }))),
            _ => event.extend(push(head)),
        }
        Value::Object(event)
    }

    fn to_webhook(&self) -> Value {
        let mut hook = Map::new();
        let project = |path: &str| json!({ "path_with_namespace": path });
        hook.insert("project".to_owned(), project(&self.repository));
        let (kind, attributes) = match (self.subject, self.number) {
            (Subject::PullRequest, Some(number)) => {
                let head = self.head.as_ref();
                let attributes = json!({
                    "iid": number,
                    "source_branch": head.map(|head| head.name.as_str()),
                    "source": head.and_then(|head| head.repository.as_deref()).map(project),
                    "last_commit": head.map(|head| json!({ "id": head.sha })),
                });
                ("merge_request", Some(attributes))
            }
            (Subject::Issue, Some(number)) => ("issue", Some(json!({ "iid": number }))),
            _ => {
                hook.extend(push(self.head.as_ref()));
                ("push", None)
            }
        };
        hook.insert("object_kind".to_owned(), json!(kind));
        hook.extend(attributes.map(|attributes| ("object_attributes".to_owned(), attributes)));
        Value::Object(hook)
    }
}

/// What a push says about its branch. Without one, there is nothing but that something happened.
fn push(head: Option<&Branch>) -> Vec<(String, Value)> {
    match head {
        Some(head) => {
            vec![("ref".to_owned(), json!(format!("refs/heads/{}", head.name))), ("after".to_owned(), json!(head.sha))]
        }
        None => vec![("action".to_owned(), json!("other"))],
    }
}

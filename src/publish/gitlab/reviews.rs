//! Reviews: GitLab has none, so each comment on lines is a discussion, and the text is a note. Each has a mark of its own.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::merge_requests::{DiffRefs, find};
use super::notes;
use super::project::Gitlab;
use super::requests::Note;
use crate::outputs::{KindName, LineComment, Subject, gitlab_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{Found, Post, Review, Settle, Target};
use crate::publish::http_client::Effect;
use crate::publish::mark::Mark;

#[derive(Deserialize)]
struct Discussion {
    notes: Vec<Note>,
}

pub(super) fn publish(
    gitlab: &Gitlab,
    number: u64,
    review: &Review,
    mark: &Mark,
    settle: &dyn Settle,
) -> Result<Post, Failure> {
    let target = Target { subject: Subject::PullRequest, number };
    let find_mark = |mark: &Mark| {
        let mut found = Found::Nothing;
        notes::list(gitlab, target, &mut |post| match settle.compare(&post, mark, false) {
            Some(same) => {
                found = same;
                false
            }
            None => true,
        })?;
        Ok(found)
    };
    if !review.comments.is_empty() {
        let page = find(gitlab, number)?;
        let refs = page.diff_refs.ok_or_else(|| Failure::Later("the merge request has no changes yet".to_owned()))?;
        for (at, comment) in review.comments.iter().enumerate() {
            let content = format!("{}:{}:{}", comment.path, comment.line, comment.body);
            let mark = mark.piece(at + 1, &content);
            let write = |_: Option<&Post>| create(gitlab, number, &content_of(comment, &refs, &mark));
            settle.settle(&|| find_mark(&mark), &write)?;
        }
    }
    // Last, so that a note is there only with all that it is about.
    let body = if review.body.is_empty() { "Review" } else { &review.body };
    settle.settle(&|| find_mark(mark), &|_| notes::create(gitlab, target, &mark.append_to(body)))
}

fn create(gitlab: &Gitlab, number: u64, content: &Value) -> Result<Post, Failure> {
    let path = format!("{}/merge_requests/{number}/discussions", gitlab.root);
    let made: Result<Discussion, _> = gitlab.http.send(Effect::Content, &Method::POST, &path, content);
    let made = made.map_err(|failure| failure.needing(&gitlab_text(KindName::Review)))?;
    let note = made.notes.into_iter().next();
    let note = note.ok_or_else(|| Failure::Unclear("the forge answered with an empty discussion".to_owned()))?;
    Ok(note.into_post(""))
}

fn content_of(comment: &LineComment, refs: &DiffRefs, mark: &Mark) -> Value {
    let (old, new) = match comment.is_old {
        true => (Some(comment.line), comment.other_line),
        false => (comment.other_line, Some(comment.line)),
    };
    let mut position = json!({
        "position_type": "text",
        "base_sha": refs.base_sha,
        "start_sha": refs.start_sha,
        "head_sha": refs.head_sha,
        "old_path": comment.old_path,
        "new_path": comment.path,
    });
    if let Some(old) = old {
        position["old_line"] = json!(old);
    }
    if let Some(new) = new {
        position["new_line"] = json!(new);
    }
    json!({ "body": mark.append_to(&comment.body), "position": position })
}

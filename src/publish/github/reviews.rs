//! Reviews of pull requests.

use reqwest::Method;
use serde_json::{Value, json};

use super::repository::Github;
use super::requests::Comment;
use crate::outputs::{KindName, LineComment, github_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{Found, Post, Review, Settle};
use crate::publish::http_client::Effect;
use crate::publish::mark::Mark;

pub(super) fn publish(
    github: &Github,
    number: u64,
    review: &Review,
    mark: &Mark,
    settle: &dyn Settle,
) -> Result<Post, Failure> {
    let path = format!("{}/pulls/{number}/reviews", github.root);
    let find = || {
        let mut found = Found::Nothing;
        let mut visit = |comment: Comment| match settle.compare(&comment.into(), mark, false) {
            Some(same) => {
                found = same;
                false
            }
            None => true,
        };
        github.http.list(&path, &[], &mut visit).map_err(|failure| failure.needing("`pull-requests: read`"))?;
        Ok(found)
    };
    let write = |_: Option<&Post>| {
        let made: Result<Comment, _> = github.http.send(Effect::Content, &Method::POST, &path, &content(review, mark));
        made.map(Post::from).map_err(|failure| failure.needing(&github_text(KindName::Review)))
    };
    settle.settle(&find, &write)
}

fn content(review: &Review, mark: &Mark) -> Value {
    let comments: Vec<Value> = review.comments.iter().map(line_comment).collect();
    let event = if review.requests_changes { "REQUEST_CHANGES" } else { "COMMENT" };
    json!({
        "commit_id": review.commit,
        "body": mark.append_to(&review.body),
        "event": event,
        "comments": comments,
    })
}

fn line_comment(comment: &LineComment) -> Value {
    let side = if comment.is_old { "LEFT" } else { "RIGHT" };
    let mut value = json!({ "path": comment.path, "line": comment.line, "side": side, "body": comment.body });
    if let Some(start) = comment.start_line {
        value["start_line"] = json!(start);
        value["start_side"] = json!(side);
    }
    value
}

//! Comments on issues and pull requests.

use reqwest::Method;
use serde_json::json;

use super::repository::Github;
use super::requests::Comment;
use crate::outputs::{KindName, github_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{Post, Visit};
use crate::publish::http_client::Effect;

pub(super) fn list(github: &Github, number: u64, visit: Visit<'_, Post>) -> Result<(), Failure> {
    let path = format!("{}/issues/{number}/comments", github.root);
    let listed = github.http.list(&path, &[], &mut |comment: Comment| visit(comment.into()));
    listed.map_err(|failure| failure.needing("`issues: read`").when_missing(|| github.absent(number)))
}

pub(super) fn create(github: &Github, number: u64, body: &str) -> Result<Post, Failure> {
    let path = format!("{}/issues/{number}/comments", github.root);
    let made: Result<Comment, _> = github.http.send(Effect::Content, &Method::POST, &path, &json!({ "body": body }));
    made.map(Post::from)
        .map_err(|failure| failure.needing(&github_text(KindName::Comment)).when_missing(|| github.absent(number)))
}

pub(super) fn update(github: &Github, id: u64, body: &str) -> Result<Post, Failure> {
    let path = format!("{}/issues/comments/{id}", github.root);
    let made: Result<Comment, _> = github.http.send(Effect::Content, &Method::PATCH, &path, &json!({ "body": body }));
    made.map(Post::from).map_err(|failure| failure.needing(&github_text(KindName::Comment)))
}

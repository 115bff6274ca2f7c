//! Notes on issues and merge requests.

use reqwest::Method;
use serde_json::json;

use super::issues::page_of;
use super::project::Gitlab;
use super::requests::Note;
use crate::outputs::{KindName, gitlab_text};
use crate::publish::failure::Failure;
use crate::publish::forge::{Post, Target, Visit};
use crate::publish::http_client::Effect;

pub(super) fn list(gitlab: &Gitlab, target: Target, visit: Visit<'_, Post>) -> Result<(), Failure> {
    let page = page_of(gitlab, target);
    let path = format!("{}/notes", gitlab.path_of(target));
    let query = [("sort", "asc"), ("order_by", "created_at")];
    let listed = gitlab.http.list(&path, &query, &mut |note: Note| note.system || visit(note.into_post(&page)));
    listed.map_err(|failure| failure.needing(&gitlab_text(KindName::Comment)).when_missing(|| gitlab.absent(target)))
}

pub(super) fn create(gitlab: &Gitlab, target: Target, body: &str) -> Result<Post, Failure> {
    let path = format!("{}/notes", gitlab.path_of(target));
    let made: Result<Note, _> = gitlab.http.send(Effect::Content, &Method::POST, &path, &json!({ "body": body }));
    let made = made
        .map_err(|failure| failure.needing(&gitlab_text(KindName::Comment)).when_missing(|| gitlab.absent(target)))?;
    Ok(made.into_post(&page_of(gitlab, target)))
}

pub(super) fn update(gitlab: &Gitlab, target: Target, id: u64, body: &str) -> Result<Post, Failure> {
    let path = format!("{}/notes/{id}", gitlab.path_of(target));
    let made: Result<Note, _> = gitlab.http.send(Effect::Content, &Method::PUT, &path, &json!({ "body": body }));
    let made = made.map_err(|failure| failure.needing(&gitlab_text(KindName::Comment)))?;
    Ok(made.into_post(&page_of(gitlab, target)))
}

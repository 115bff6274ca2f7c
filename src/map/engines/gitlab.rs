//! A pipeline for GitLab CI: a parallel job with one instance for each shard, and one that gathers their results.

use minijinja::{Value, context};

use super::engine::{Engine, MapCommand, yaml_string};
use crate::outputs::on_gitlab;

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "gitlab",
    // https://docs.gitlab.com/ci/yaml/#parallel
    max_shards: 200,
    needs_image: true,
    shares_folder: false,
    is_elsewhere: true,
    publishes: true,
    template: include_str!("gitlab.yaml.in"),
    values,
};

fn values(map: &MapCommand<'_>) -> Value {
    let job = map.job;
    // With a prefix, no name is a keyword of GitLab such as `pages`.
    let publish_job = yaml_string(&format!("publish {job}"));
    let is_developer = map.outputs.iter().any(|kind| on_gitlab(*kind) == Some("Developer"));
    let role = if is_developer { "Developer" } else { "Reporter" };
    context! { publish_job, role, map_job => yaml_string(&format!("map {job}")), gather_job => yaml_string(&format!("gather {job}")) }
}

//! A pipeline for GitLab CI: a parallel job with one instance for each shard, and one that gathers their results.

use super::{Engine, MapCommand, RETRYABLE, command_line, shell_word, yaml_string};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "gitlab",
    about: "a pipeline for GitLab CI: a parallel job with one instance for each shard",
    // https://docs.gitlab.com/ci/yaml/#parallel
    max_shards: 200,
    needs_image: true,
    emit,
};

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, folder, image, .. } = map;
    let image = yaml_string(image.unwrap_or_default());
    let command = yaml_string(&format!("{} --shard auto", command_line(map.words)));
    let gather = yaml_string(&format!("legwork gather shards/* --rows {} --to gathered", shell_word(map.rows)));
    // Each instance keeps its records in a folder of its own, so that the artifacts don't overwrite each other.
    let shard =
        yaml_string("mkdir -p shards && mv FOLDER \"shards/$CI_NODE_INDEX\"").replace("FOLDER", &shell_word(folder));
    // `parallel` is 2 at least.
    let parallel = if *shards > 1 { format!("  parallel: {shards}\n") } else { String::new() };
    format!(
        r#"# The key of the provider is a masked CI/CD variable of the project.
stages: [run, gather]

{job}:
  stage: run
  image: {image}
{parallel}  # Exit {RETRYABLE}: some row can go on. A retry starts with an empty folder, so the rows of this shard run anew.
  retry:
    max: 2
    exit_codes: [{RETRYABLE}]
  script:
    - {command}
  after_script:
    - {shard}
  artifacts:
    when: always
    paths: [shards/]

gather:
  stage: gather
  image: {image}
  when: always
  script:
    - {gather}
  artifacts:
    when: always
    paths: [gathered/]
"#
    )
}

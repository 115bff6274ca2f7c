//! A pipeline for GitLab CI: a parallel job with one instance for each shard, and one that gathers their results.

use super::engine::{Engine, MapCommand, RETRYABLE, command_line, shell_word, yaml_string};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "gitlab",
    // https://docs.gitlab.com/ci/yaml/#parallel
    max_shards: 200,
    needs_image: true,
    shares_folder: false,
    is_elsewhere: true,
    emit,
};

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, image, .. } = map;
    // With a prefix, no name is a keyword of GitLab such as `pages`.
    let (map_job, gather_job) = (yaml_string(&format!("map {job}")), yaml_string(&format!("gather {job}")));
    let image = yaml_string(image.unwrap_or_default());
    let command = command_line(map.words);
    let gather = map.gather_command("shards/*");
    let folder = shell_word(map.folder);
    // `parallel` is 2 at least. Without it, CI_NODE_INDEX isn't set.
    let parallel = if *shards > 1 { format!("  parallel: {shards}\n") } else { String::new() };
    let secrets = map.secret_names();
    let preparation =
        map.preparation("set them as CI/CD variables, unless the image sets them", "it has to be in the image");
    format!(
        r#"# It needs {secrets} as masked CI/CD variables of the project. The image has legwork and a shell.
{preparation}stages: [map, gather]

{map_job}:
  stage: map
  image:
    name: {image}
    entrypoint: [""]
{parallel}  # Exit {RETRYABLE}: some row can go on. The script tries it again and runs only these rows. A new instance of the job starts
  # without records, so it runs all rows of the shard. The other codes are final.
  retry:
    max: 1
    when: [runner_system_failure]
    exit_codes: [{RETRYABLE}]
  # A script that takes too long is stopped early enough to keep its records (GitLab Runner 16.4 or later). For longer
  # shards, raise `timeout` and RUNNER_SCRIPT_TIMEOUT together. A runner can have a lower limit of its own.
  timeout: 1h
  variables:
    RUNNER_SCRIPT_TIMEOUT: 50m
    RUNNER_AFTER_SCRIPT_TIMEOUT: 5m
  script:
    - |
      for delay in 60 300 900 0; do
        code=0
        {command} --shard "${{CI_NODE_INDEX:-1}}/{shards}" || code=$?
        [ "$code" = {RETRYABLE} ] && [ "$delay" != 0 ] || exit "$code"
        sleep "$delay"
      done
  after_script:
    # Each instance keeps its records in a folder of its own, so that the artifacts don't overwrite each other.
    - |
      mkdir -p shards
      mv {folder} "shards/${{CI_NODE_INDEX:-1}}"
  artifacts:
    when: always
    paths: [shards/]

{gather_job}:
  stage: gather
  image:
    name: {image}
    entrypoint: [""]
  when: always
  script:
    - |
      {gather} --to gathered
  artifacts:
    when: always
    paths: [gathered/]
"#
    )
}

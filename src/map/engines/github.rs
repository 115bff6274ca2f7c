//! A workflow for GitHub Actions: a matrix with one job for each shard, and one that gathers their results.

use super::engine::{Engine, MapCommand, RETRYABLE, command_line, shell_word, yaml_string};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "github",
    // https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstrategymatrix
    max_shards: 256,
    needs_image: false,
    shares_folder: false,
    is_elsewhere: true,
    emit,
};

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, .. } = map;
    let name = yaml_string(job);
    let shell = without_expressions(&command_line(map.words));
    let folder = without_expressions(&shell_word(map.folder));
    let gather = without_expressions(&map.gather_command("shards/*"));
    let list: Vec<String> = (1..=*shards).map(|shard| shard.to_string()).collect();
    let list = list.join(", ");
    let secrets: String = map
        .secrets
        .iter()
        .filter(|name| !is_of_runner(name))
        .map(|name| format!("          {name}: ${{{{ secrets.{name} }}}}\n"))
        .collect();
    let env = if secrets.is_empty() { String::new() } else { format!("        env:\n{secrets}") };
    let preparation = map
        .preparation("add them to `env` of the step Run, unless the runner sets them", "write it in a step before Run");
    format!(
        r#"{preparation}name: {name}
on: workflow_dispatch
permissions:
  contents: read
jobs:
  map:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        shard: [{list}]
    steps:
      - uses: actions/checkout@v7
        with:
          persist-credentials: false
      - name: Install
        run: |
          sudo apt-get update && sudo apt-get install --yes bubblewrap
          # Ubuntu keeps bubblewrap from creating user namespaces.
          sudo sysctl --ignore --quiet --write kernel.apparmor_restrict_unprivileged_userns=0
          cargo install --locked legwork
      - name: Run
{env}        run: |
          # Exit {RETRYABLE}: some row can go on. It is tried again after a pause, and runs only these rows. The other codes are
          # final. "Re-run failed jobs" starts on a new machine without records, so it runs all rows of the shard.
          for delay in 60 300 900 0; do
            code=0
            {shell} --shard "${{{{ matrix.shard }}}}/{shards}" || code=$?
            [ "$code" = {RETRYABLE} ] && [ "$delay" != 0 ] || exit "$code"
            sleep "$delay"
          done
      - name: Collect the records
        if: always()
        run: |
          mkdir -p shards
          mv {folder} "shards/${{{{ matrix.shard }}}}"
      - name: Keep the records
        if: always()
        uses: actions/upload-artifact@v7
        with:
          name: shard-${{{{ matrix.shard }}}}
          path: shards
          include-hidden-files: true
          overwrite: true
  gather:
    needs: map
    if: always()
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v7
        with:
          persist-credentials: false
      - name: Install
        run: cargo install --locked legwork
      - uses: actions/download-artifact@v8
        with:
          pattern: shard-*
          path: shards
          merge-multiple: true
      - name: Gather
        run: |
          {gather} --to gathered
      - name: Keep the results
        if: always()
        uses: actions/upload-artifact@v7
        with:
          name: results
          path: gathered
          overwrite: true
"#
    )
}

/// A shell command without `${{`, which GitHub would replace before a shell sees it. Only words in single quotes have it.
fn without_expressions(command: &str) -> String {
    command.replace("${{", "$''{{")
}

/// Whether the runner sets a variable. No secret can have such a name, except the token of the workflow.
fn is_of_runner(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name != "GITHUB_TOKEN" && (name == "CI" || name.starts_with("GITHUB_") || name.starts_with("RUNNER_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_expressions() {
        let command = without_expressions(&command_line(&["a=${{ secrets.X }}".to_owned(), "$${{{".to_owned()]));
        assert_eq!(command, "'a=$''{{ secrets.X }}' '$$''{{{'");
    }

    #[test]
    fn variables_of_the_runner_are_not_secrets() {
        assert!(is_of_runner("GITHUB_SHA") && is_of_runner("runner_os") && is_of_runner("CI"));
        assert!(!is_of_runner("GITHUB_TOKEN") && !is_of_runner("ANTHROPIC_API_KEY"));
    }
}

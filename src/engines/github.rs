//! A workflow for GitHub Actions: a matrix with one job for each shard, and one that gathers their results.

use super::{Engine, MapCommand, RETRYABLE, command_line, shell_word};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "github",
    about: "a workflow for GitHub Actions: a matrix with one job for each shard",
    // https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstrategymatrix
    max_shards: 256,
    needs_image: false,
    emit,
};

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, .. } = map;
    let shell = command_line(map.words);
    let (rows, folder) = (shell_word(map.rows), map.folder);
    let list: Vec<String> = (1..=*shards).map(|shard| shard.to_string()).collect();
    let list = list.join(", ");
    let secrets: String =
        map.secrets.iter().map(|name| format!("          {name}: ${{{{ secrets.{name} }}}}\n")).collect();
    let env = if secrets.is_empty() { String::new() } else { format!("        env:\n{secrets}") };
    format!(
        r#"name: {job}
on: workflow_dispatch
permissions:
  contents: read
jobs:
  run:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        shard: [{list}]
    steps:
      - uses: actions/checkout@v5
        with:
          persist-credentials: false
      - name: Install
        run: |
          sudo apt-get update && sudo apt-get install --yes bubblewrap
          cargo install --locked legwork
      - name: Run
{env}        run: |
          # Exit {RETRYABLE}: some row can go on. Only those rows are tried again.
          for delay in 60 300 900 0; do
            code=0
            {shell} --shard "${{{{ matrix.shard }}}}/{shards}" || code=$?
            [ "$code" = {RETRYABLE} ] && [ "$delay" != 0 ] || exit "$code"
            sleep "$delay"
          done
      - name: Keep the records
        if: always()
        uses: actions/upload-artifact@v4
        with:
          name: shard-${{{{ matrix.shard }}}}
          path: {folder}
          include-hidden-files: true
  gather:
    needs: run
    if: always()
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v5
        with:
          persist-credentials: false
      - name: Install
        run: cargo install --locked legwork
      - uses: actions/download-artifact@v5
        with:
          path: shards
      - name: Gather
        run: legwork gather shards/* --rows {rows} --to gathered
      - name: Keep the results
        if: always()
        uses: actions/upload-artifact@v4
        with:
          name: results
          path: gathered
"#
    )
}

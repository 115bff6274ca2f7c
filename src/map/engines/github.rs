//! A workflow for GitHub Actions: a matrix with one job for each shard, and one that gathers their results.

use std::collections::BTreeSet;

use minijinja::{Value, context};

use super::engine::{Engine, MapCommand, command_line, shell_word};
use crate::outputs::on_github;

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "github",
    // https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstrategymatrix
    max_shards: 256,
    needs_image: false,
    shares_folder: false,
    is_elsewhere: true,
    publishes: true,
    template: include_str!("github.yaml.in"),
    values,
};

fn values(map: &MapCommand<'_>) -> Value {
    let secrets: Vec<String> = map.secrets.iter().filter(|name| !is_of_runner(name)).cloned().collect();
    let names = map.outputs.iter().flat_map(|kind| on_github(*kind)).map(|permission| permission.name);
    let permissions: BTreeSet<&str> = names.collect();
    context! {
        may_write_contents => permissions.contains("contents"),
        permissions => permissions.into_iter().filter(|name| *name != "contents").collect::<Vec<_>>(),
        job_file => without_expressions(&shell_word(map.job_file)),
        command => without_expressions(&command_line(map.words)),
        folder => without_expressions(&shell_word(map.folder)),
        gather_options => without_expressions(&map.gather_options()),
        secrets,
    }
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

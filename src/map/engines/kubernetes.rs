//! A manifest for Kubernetes: an Indexed Job with one pod for each shard.

use minijinja::{Value, context};
use sha2::{Digest, Sha256};

use super::engine::{Engine, MapCommand, yaml_string};
use crate::text::hex;

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "kubernetes",
    // With `backoffLimitPerIndex` and without `maxFailedIndexes`, `completions` is 100,000 at most.
    max_shards: 100_000,
    needs_image: true,
    shares_folder: true,
    is_elsewhere: true,
    publishes: false,
    template: include_str!("kubernetes.yaml.in"),
    values,
};

/// The greatest length of a name (RFC 1123).
const MAX_NAME_BYTES: usize = 63;

/// How many digits of a digest keep the names of maps apart.
const DIGEST_CHARS: usize = 8;

/// How many pods run at once at most. `parallelism` can be changed while the Job runs.
const MAX_PARALLELISM: u32 = 50;

fn values(map: &MapCommand<'_>) -> Value {
    let words = map.words.iter().map(String::as_str).chain(["--shard", "auto"]);
    context! {
        name => yaml_string(&job_name(map.job, map.name, map.shards)),
        command => words.map(argument).collect::<Vec<_>>(),
        parallelism => map.shards.min(MAX_PARALLELISM),
    }
}

/// A name for the Job. With `-` and the index of a pod it is the pod's host name, so together they have at most 63 characters.
/// It also ends with a letter or digit. If the map has a name of its own, a digest keeps the maps of a job apart, whatever
/// has to be replaced or cut off.
fn job_name(job: &str, map: Option<&str>, shards: u32) -> String {
    let index = shards.saturating_sub(1).to_string().len();
    let max_chars = MAX_NAME_BYTES - 1 - index;
    let label = |name: &str, max_chars: usize| {
        let name: String = name.chars().take(max_chars).collect();
        name.trim_end_matches('-').to_owned()
    };
    let Some(map) = map else { return label(job, max_chars) };
    let digest: String = hex(&Sha256::digest(format!("{job} {map}"))).chars().take(DIGEST_CHARS).collect();
    let name = format!("{job}-{map}").to_ascii_lowercase().replace(['.', '_'], "-");
    format!("{}-{digest}", label(&name, max_chars - 1 - DIGEST_CHARS))
}

/// A word of a container's command, in which Kubernetes replaces `$(NAME)` and turns `$$` into `$`.
fn argument(word: &str) -> String {
    yaml_string(&word.replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_index_fit_into_a_host_name() {
        assert_eq!(job_name("find-test-framework", None, 60), "find-test-framework");
        assert_eq!(job_name("a-", None, 1), "a");
        let long = "a".repeat(64);
        for (shards, length) in [(1, 61), (10, 61), (11, 60), (100_000, 57)] {
            assert_eq!(job_name(&long, None, shards).len(), length, "{shards}");
        }
        let dashes = format!("{}---{}", "a".repeat(58), "b");
        assert_eq!(job_name(&dashes, None, 1), "a".repeat(58));
    }

    #[test]
    fn maps_with_names_have_names_of_their_own() {
        let long = "a".repeat(64);
        let pairs = [
            ("a", "b"),
            ("a", "B"),
            ("a", "b.c"),
            ("a", "b_c"),
            ("a", "b-c"),
            ("a-b", "c"),
            (&*long, "b"),
            (&*long, "c"),
        ];
        let mut names: Vec<String> = pairs.iter().map(|(job, map)| job_name(job, Some(map), 100)).collect();
        assert!(names[0].starts_with("a-b-") && names[2].starts_with("a-b-c-"), "{names:?}");
        for name in &names {
            assert!(
                name.len() <= 60
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), pairs.len(), "{names:?}");
    }

    #[test]
    fn kubernetes_expands_nothing_in_a_word() {
        assert_eq!(argument("$(HOME) $$ $"), r#""$$(HOME) $$$$ $$""#);
    }
}

//! A manifest for Kubernetes: an Indexed Job with one pod for each shard.

use sha2::{Digest, Sha256};

use super::engine::{Engine, MapCommand, RETRYABLE, shell_word, yaml_string};
use crate::text::hex;

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "kubernetes",
    // With `backoffLimitPerIndex` and without `maxFailedIndexes`, `completions` is 100,000 at most.
    max_shards: 100_000,
    needs_image: true,
    shares_folder: true,
    is_elsewhere: true,
    emit,
};

/// The greatest length of a name (RFC 1123).
const MAX_NAME_BYTES: usize = 63;

/// How many digits of a digest keep the names of maps apart.
const DIGEST_CHARS: usize = 8;

/// How many pods run at once at most. `parallelism` can be changed while the Job runs.
const MAX_PARALLELISM: u32 = 50;

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, folder, image, .. } = map;
    let name = yaml_string(&job_name(job, map.name, *shards));
    let image = yaml_string(image.unwrap_or_default());
    let words: Vec<String> = map.words.iter().map(String::as_str).chain(["--shard", "auto"]).map(argument).collect();
    let command = words.join("\n            - ");
    let parallelism = (*shards).min(MAX_PARALLELISM);
    let keys: String = map.secrets.iter().map(|secret| format!("#       --from-literal={secret}=... \\\n")).collect();
    let preparation =
        map.preparation("add them to `env`, unless the image sets them", "it has to be in the image or mounted");
    let gather = map.gather_command(&shell_word(folder));
    format!(
        r#"# One pod for each shard. The claim `legwork` is a volume that all pods share (ReadWriteMany), with the repository in it;
# the pods write their records there. The secret `legwork` has the keys, and a LEGWORK_RECORD_KEY that is the same for all
# pods so that one can resume the runs of another:
#
#     kubectl create secret generic legwork \
{keys}#       --from-literal=LEGWORK_RECORD_KEY="$(openssl rand -hex 32)"
#
{preparation}# To submit it again, which runs only what isn't finished, first remove the old one: kubectl delete --filename FILE
#
# When all pods have ended, collect the results in the volume:
#
#     {gather}
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {parallelism}
  # Exit {RETRYABLE} and signals are tried again, each time after a longer pause. The other codes mean the same at every try.
  backoffLimitPerIndex: 10
  podFailurePolicy:
    rules:
      # Preempted, evicted, or the node is gone: not a failure of the shard.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
      - action: FailIndex
        onExitCodes:
          containerName: legwork
          operator: In
          values: [1, 2, 3, 4, 5, 7, 126, 127]
  template:
    spec:
      restartPolicy: Never
      # After SIGTERM, legwork closes its records.
      terminationGracePeriodSeconds: 60
      # Neither legwork nor the tools of its agents use the Kubernetes API.
      automountServiceAccountToken: false
      containers:
        - name: legwork
          image: {image}
          workingDir: /workspace
          command:
            - {command}
          env:
            - name: LEGWORK_SHARDS
              value: "{shards}"
          envFrom:
            - secretRef:
                name: legwork
          volumeMounts:
            - name: workspace
              mountPath: /workspace
          resources:
            requests:
              cpu: 250m
              memory: 256Mi
      volumes:
        - name: workspace
          persistentVolumeClaim:
            claimName: legwork
"#
    )
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

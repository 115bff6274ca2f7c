//! A manifest for Kubernetes: an Indexed Job with one pod for each shard.

use super::{Engine, MapCommand, yaml_string};

/// The engine.
pub(super) const ENGINE: Engine = Engine {
    name: "kubernetes",
    about: "a manifest for `kubectl apply`: an Indexed Job with one pod for each shard",
    max_shards: 100_000,
    needs_image: true,
    emit,
};

fn emit(map: &MapCommand<'_>) -> String {
    let MapCommand { job, shards, folder, image, .. } = map;
    let image = yaml_string(image.unwrap_or_default());
    let words: Vec<String> = map.words.iter().map(String::as_str).chain(["--shard", "auto"]).map(yaml_string).collect();
    let command = words.join(", ");
    let parallelism = (*shards).min(50);
    format!(
        r#"# One pod for each shard. The claim `legwork` is a volume that all pods share (ReadWriteMany), with the repository in it;
# the pods write their records there. The secret `legwork` has the provider's key and LEGWORK_RECORD_KEY, which is the same
# for all pods so that one can resume the runs of another:
#
#     kubectl create secret generic legwork --from-literal=ANTHROPIC_API_KEY=... \
#       --from-literal=LEGWORK_RECORD_KEY="$(openssl rand -hex 32)"
#
# When all pods have ended, collect the results in the volume: legwork gather {folder}
apiVersion: batch/v1
kind: Job
metadata:
  name: {job}
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {parallelism}
  # Exit 75 and signals are tried again. The other codes mean the same at every try.
  backoffLimitPerIndex: 10
  podFailurePolicy:
    rules:
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
      - action: FailIndex
        onExitCodes:
          containerName: legwork
          operator: In
          values: [1, 2, 3, 4, 5, 7]
  template:
    spec:
      restartPolicy: Never
      # After SIGTERM, legwork closes its records.
      terminationGracePeriodSeconds: 60
      containers:
        - name: legwork
          image: {image}
          workingDir: /workspace
          command: [{command}]
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

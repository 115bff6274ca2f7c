#!/usr/bin/env bash
# Publishes what a run has proposed, from a runner of GitHub Actions, again while the forge is overloaded or unreachable. Its settings
# are variables, so no value becomes part of a script. Whatever is there already isn't published again.
set -euo pipefail

if ! [[ ${LEGWORK_RETRIES-} =~ ^[0-9[:space:]]*$ ]]; then
    echo "::error::legwork: the input \`retries\` isn't a list of seconds, such as 120 600"
    exit 2
fi
folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/legwork-XXXXXX")
arguments=(publish "$LEGWORK_RECORD" --job "$LEGWORK_JOB" --to github)
[ -z "${LEGWORK_EVENT:-}" ] || arguments+=(--event "$LEGWORK_EVENT")
[ -z "${LEGWORK_NUMBER:-}" ] || arguments+=(--number "$LEGWORK_NUMBER")
# Whoever can change a record can remove its seal.
[ -z "${LEGWORK_RECORD_KEY:-}" ] || arguments+=(--require sealed)
if [ "${LEGWORK_COMMENT:-false}" = true ]; then
    key=$(printf '%s' "${LEGWORK_STEP:-answer}" | LC_ALL=C tr -c '[:alnum:]._-' - | tail -c 100)
    arguments+=("--comment=$key")
fi

# Every attempt writes outputs and a summary. Only those of the last one are kept.
outputs=${GITHUB_OUTPUT:-/dev/null} summary=${GITHUB_STEP_SUMMARY:-/dev/null}
code=0
for pause in 0 ${LEGWORK_RETRIES-120 600}; do
    [ "$pause" = 0 ] || echo "Not all could be published yet. The next attempt starts in $pause seconds."
    sleep "$pause"
    : > "$folder/outputs"
    : > "$folder/summary"
    code=0
    GITHUB_OUTPUT=$folder/outputs GITHUB_STEP_SUMMARY=$folder/summary "${LEGWORK:-legwork}" "${arguments[@]}" || code=$?
    [ "$code" = 75 ] || break
done
cat "$folder/outputs" >> "$outputs"
cat "$folder/summary" >> "$summary"
exit "$code"

#!/usr/bin/env bash
# Runs a job on a runner of GitHub Actions, again while the provider is overloaded or unreachable. Its settings are variables, so
# no value becomes part of a script. legwork itself writes the outputs and the summary of the step.
set -euo pipefail

folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/legwork-XXXXXX")
answer=$folder/answer.md
# The same key in every attempt: the next attempt goes on where the last one ended. It differs between the steps of a workflow.
key=$(printf '%s' "${GITHUB_RUN_ID:-0}-${GITHUB_RUN_ATTEMPT:-1}-${GITHUB_JOB:-job}-${GITHUB_ACTION:-step}" |
    tr '[:upper:]' '[:lower:]' | tr --complement '[:lower:][:digit:]-' - | cut -c 1-64)
arguments=(run "$LEGWORK_JOB" --key "$key" --sandbox "${LEGWORK_SANDBOX:-required}" --workspace "${LEGWORK_WORKSPACE:-.}")
if [ -n "${LEGWORK_INPUTS//[[:space:]]/}" ]; then
    printf '%s\n' "$LEGWORK_INPUTS" > "$folder/inputs.yaml"
    arguments+=(--inputs "$folder/inputs.yaml")
fi
[ -z "${LEGWORK_MODEL:-}" ] || arguments+=(--model "$LEGWORK_MODEL")
[ "${LEGWORK_UNTRUSTED:-false}" = false ] || arguments+=(--untrusted)
while IFS= read -r limit; do
    limit=${limit//[[:space:]]/}
    [ -z "$limit" ] || arguments+=(--limit "$limit")
done <<< "${LEGWORK_LIMIT:-}"

# Every attempt writes outputs and a summary. Only those of the last one are kept.
outputs=${GITHUB_OUTPUT:-/dev/null} summary=${GITHUB_STEP_SUMMARY:-/dev/null}
code=0
for pause in 0 ${LEGWORK_RETRIES-120 600}; do
    [ "$pause" = 0 ] || echo "The provider is overloaded or unreachable. The next attempt starts in $pause seconds."
    sleep "$pause"
    code=0
    : > "$folder/outputs"
    : > "$folder/summary"
    # A cancelled workflow ends this script with a signal, which has to reach legwork.
    GITHUB_OUTPUT=$folder/outputs GITHUB_STEP_SUMMARY=$folder/summary \
        "${LEGWORK:-legwork}" "${arguments[@]}" > "$answer" &
    legwork=$!
    trap 'kill -s TERM "$legwork" 2> /dev/null' TERM INT HUP
    wait "$legwork" || code=$?
    while kill -s 0 "$legwork" 2> /dev/null; do
        code=0
        wait "$legwork" || code=$?
    done
    trap - TERM INT HUP
    [ "$code" = 75 ] || break
done
cat "$folder/outputs" >> "$outputs"
cat "$folder/summary" >> "$summary"
[ ! -s "$answer" ] || echo "answer=$answer" >> "$outputs"
exit "$code"

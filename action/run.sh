#!/usr/bin/env bash
# Runs a job on a runner of GitHub Actions, again while the provider is overloaded or unreachable. Its settings are variables, so
# no value becomes part of a script. legwork itself writes the outputs and the summary of the step. The options of tools are short,
# because macOS has no long ones.
set -euo pipefail

if ! [[ ${LEGWORK_RETRIES-} =~ ^[0-9[:space:]]*$ ]]; then
    echo "::error::legwork: the input \`retries\` isn't a list of seconds, such as 120 600"
    exit 2
fi
folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/legwork-XXXXXX")
answer=$folder/answer.md
# The same key in every attempt: the next attempt goes on where the last one ended. It differs between the steps of a workflow.
key=$(printf '%s' "${GITHUB_RUN_ID:-0}-${GITHUB_RUN_ATTEMPT:-1}-${GITHUB_ACTION:-step}-${GITHUB_JOB:-job}" |
    tr '[:upper:]' '[:lower:]' | tr -c '[:lower:][:digit:]-' - | cut -c 1-100)
arguments=(run "$LEGWORK_JOB" --key "$key" --sandbox "${LEGWORK_SANDBOX:-required}" --workspace "${LEGWORK_WORKSPACE:-.}")
if [ -n "${LEGWORK_INPUTS//[[:space:]]/}" ]; then
    printf '%s\n' "$LEGWORK_INPUTS" > "$folder/inputs.yaml"
    arguments+=(--inputs "$folder/inputs.yaml")
fi
[ -z "${LEGWORK_INPUTS_FILE:-}" ] || arguments+=(--inputs "$LEGWORK_INPUTS_FILE")
while IFS= read -r value; do
    value=${value%$'\r'}
    value=${value#"${value%%[![:space:]]*}"}
    [ -n "$value" ] || continue
    if [[ $value != *?=?* ]]; then
        echo "::error::legwork: a line of the input \`set-file\` isn't NAME=PATH"
        exit 2
    fi
    arguments+=(--set "${value%%=*}=@${value#*=}")
done <<< "${LEGWORK_SET_FILE:-}"
[ -z "${LEGWORK_EVENT:-}" ] || arguments+=(--event "$LEGWORK_EVENT")
[ -z "${LEGWORK_NUMBER:-}" ] || arguments+=(--number "$LEGWORK_NUMBER")
[ -z "${LEGWORK_MODEL:-}" ] || arguments+=(--model "$LEGWORK_MODEL")
[ "${LEGWORK_UNTRUSTED:-false}" = false ] || arguments+=(--untrusted)
while IFS= read -r limit; do
    limit=${limit//[[:space:]]/}
    [ -z "$limit" ] || arguments+=(--limit "$limit")
done <<< "${LEGWORK_LIMIT:-}"

# Every attempt writes outputs and a summary. Only those of the last one are kept.
outputs=${GITHUB_OUTPUT:-/dev/null} summary=${GITHUB_STEP_SUMMARY:-/dev/null}
# A cancelled workflow ends this script with a signal, which has to reach legwork, or to end a pause.
child='' stopped='' interrupted=''
stop() {
    stopped=yes interrupted=yes
    [ -z "$child" ] || kill -s TERM "$child" 2> /dev/null || true
}
trap stop TERM INT HUP
# Waits for the child, and sets `status`.
wait_for_child() {
    status=''
    [ -z "$stopped" ] || stop
    while :; do
        local waited=0
        interrupted=''
        wait "$child" || waited=$?
        # 127: the loop has the status already.
        [ "$waited" = 127 ] && [ -n "$status" ] || status=$waited
        # A signal interrupts `wait`.
        [ -n "$interrupted" ] || break
    done
    child=''
}
code=0
for pause in 0 ${LEGWORK_RETRIES-120 600}; do
    [ "$pause" = 0 ] || echo "The provider is overloaded or unreachable. The next attempt starts in $pause seconds."
    sleep "$pause" &
    child=$!
    wait_for_child
    [ -z "$stopped" ] || break
    : > "$folder/outputs"
    : > "$folder/summary"
    GITHUB_OUTPUT=$folder/outputs GITHUB_STEP_SUMMARY=$folder/summary \
        "${LEGWORK:-legwork}" "${arguments[@]}" > "$answer" &
    child=$!
    wait_for_child
    code=$status
    [ "$code" = 75 ] && [ -z "$stopped" ] || break
done
cat "$folder/outputs" >> "$outputs"
cat "$folder/summary" >> "$summary"
[ ! -s "$answer" ] || echo "answer-file=$answer" >> "$outputs"
# The file of the outputs names the record on a line of its own, and no value of a model comes before it.
record=$(sed -n 's/^record=//p' "$folder/outputs" | head -n 1)
if [ -n "$record" ] && "${LEGWORK:-legwork}" show "$record" --result > "$folder/result.json" 2> /dev/null; then
    echo "result-file=$folder/result.json" >> "$outputs"
fi
exit "$code"

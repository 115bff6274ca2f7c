#!/usr/bin/env bash
# Validates what `legwork emit` prints with the official schemas of the engines, and the script for Slurm with bash.
#
# LEGWORK is the program; default: target/debug/legwork, which is built first. LEGWORK_ENGINES_VENV is the folder of the
# installed schemas; default: target/engines.
set -eu
cd "$(dirname "$0")/../.."

if [ -z "${LEGWORK:-}" ]; then
    cargo build --locked --quiet
    LEGWORK=$PWD/target/debug/legwork
fi
venv=${LEGWORK_ENGINES_VENV:-target/engines}
requirements=tests/engines/requirements.txt
if ! cmp --silent "$requirements" "$venv/installed.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
        --requirement "$requirements"
    cp "$requirements" "$venv/installed.txt"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$folder/jobs"
# The name is as long as a name can be, and GitLab has a keyword of this name.
long=$(printf '%064d' 0 | tr 0 x)
for job in first pages true "$long"; do
    cat > "$folder/jobs/$job.yaml" << 'JOB'
model: anthropic/claude-haiku-5-5
inputs: { topic: { type: string }, style: { type: string, default: plain }, token: { type: string, secret: true } }
parent: { prompt: "Write about {{ inputs.topic }} in a {{ inputs.style }} style.", tools: [] }
limits: { cost_usd: 1 }
JOB
done
printf 'topic\none\ntwo\n' > "$folder/rows.csv"

failed=0
# Emits files for an engine and validates them: validate ENGINE ENDING MAX_SHARDS VALIDATOR...
validate() {
    local engine=$1 ending=$2 shards=$3
    shift 3
    local image=()
    case $engine in kubernetes | gitlab) image=(--image registry.example/legwork:1) ;; esac
    for job in first pages true "$long"; do
        for count in 1 2 "$shards"; do
            (cd "$folder" && "$LEGWORK" emit "$engine" "jobs/$job.yaml" --rows rows.csv --shards "$count" \
                --set-env token=TOPIC_TOKEN --set "style=a'b\"c \$(id) \${{ secrets.X }} # {x}: - %" --out 'a b' \
                ${image[@]+"${image[@]}"} > "emitted.$ending" 2> messages) || {
                cat "$folder/messages" >&2
                failed=1
                continue
            }
            if ! "$@" "$folder/emitted.$ending" > "$folder/messages" 2>&1; then
                echo "$engine: the file for $job in $count shards isn't valid:" >&2
                tail -20 "$folder/messages" >&2
                failed=1
            fi
        done
    done
    echo "$engine: checked"
}
validate kubernetes yaml 100000 "$venv/bin/kubernetes-validate" --strict
validate github yaml 256 "$venv/bin/check-jsonschema" --builtin-schema vendor.github-workflows
validate gitlab yaml 200 "$venv/bin/check-jsonschema" --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci
validate slurm sh 4000000 bash -n

# A validator that accepts everything would prove nothing.
for wrong in \
    'kubernetes-validate --strict|apiVersion: batch/v1|kind: Job|metadata: { name: a }|spec: { completion: 3 }' \
    'check-jsonschema --builtin-schema vendor.github-workflows|on: push|jobs: { a: { run-on: x } }' \
    'check-jsonschema --builtin-schema vendor.gitlab-ci|a: { script: [x], retry: { exit_code: [75] } }'; do
    IFS='|' read -r -a lines <<< "$wrong"
    printf '%s\n' "${lines[@]:1}" > "$folder/wrong.yaml"
    read -r -a words <<< "${lines[0]}"
    if "$venv/bin/${words[0]}" "${words[@]:1}" "$folder/wrong.yaml" > "$folder/messages" 2>&1; then
        echo "${lines[0]} accepts a wrong file" >&2
        failed=1
    fi
done
exit "$failed"

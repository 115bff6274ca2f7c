#!/usr/bin/env bash
# Leaves the answer of a run as a comment on the pull request, or updates the comment of an earlier run of the same step. The
# answer is in a code block: a model has written it, so no image of it is loaded, no one is mentioned, and no link is live. The
# options of tools are short, because macOS has no long ones.
set -euo pipefail

if ! [[ ${PULL_REQUEST:-} =~ ^[0-9]+$ ]]; then
    echo "::warning::legwork: this workflow wasn't started by a pull request, so there is no place for a comment"
    exit 0
fi
folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/legwork-XXXXXX")
marker="<!-- legwork: $(printf '%s' "$LEGWORK_JOB $LEGWORK_STEP" | tr -c '[:alnum:]/._-' _) -->"
# A fence that is longer than every run of backticks in the answer. GitHub takes 65,536 characters. Bytes, because the end of the
# excerpt may be half a character, and grep would take it for a binary file without matches.
head -c 60000 "$LEGWORK_ANSWER" > "$folder/answer"
longest=$({ LC_ALL=C grep -a -o '`*' "$folder/answer" || true; } | awk '{ if (length > n) n = length } END { print n + 0 }')
# With such a fence, the comment could be longer than GitHub takes.
if [ "$longest" -gt 1000 ]; then
    printf 'The answer has %s backticks in a row: see the record of the run.' "$longest" > "$folder/answer"
    longest=0
fi
fence=$(printf '%*s' "$((longest > 2 ? longest + 1 : 3))" '' | tr ' ' '`')
{
    printf '%s\n' "$marker"
    printf '**legwork** `%s`: %s\n\n' "$(printf '%s' "$LEGWORK_JOB" | tr -c '[:alnum:]/._-' _)" \
        "$(printf '%s' "${LEGWORK_OUTCOME:-unknown}" | tr -c '[:alnum:]_' _)"
    printf '%s\n' "$fence"
    cat "$folder/answer"
    printf '\n%s\n' "$fence"
    [ "$(wc -c < "$LEGWORK_ANSWER")" -le 60000 ] || printf '\nThe answer is longer: see the record of the run.\n'
} > "$folder/body"
repository=repos/$GITHUB_REPOSITORY
existing=$(gh api --paginate "$repository/issues/$PULL_REQUEST/comments?per_page=100" \
    --jq ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$marker\"))) | .id")
existing=${existing%%$'\n'*}
if [ -n "$existing" ]; then
    gh api --method PATCH "$repository/issues/comments/$existing" --field "body=@$folder/body" > /dev/null
else
    gh api --method POST "$repository/issues/$PULL_REQUEST/comments" --field "body=@$folder/body" > /dev/null
fi

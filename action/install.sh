#!/usr/bin/env bash
# Installs legwork, and what its sandbox needs, on a runner of GitHub Actions. Its settings are variables, so no value becomes
# part of a script. The output `legwork` is the path of the binary.
set -euo pipefail

fail() {
    echo "::error::legwork: $1"
    exit 1
}

if [ -n "${LEGWORK_PATH:-}" ]; then
    [ -f "$LEGWORK_PATH" ] && [ -x "$LEGWORK_PATH" ] || fail "the input \`path\` names no executable file"
    legwork=$(realpath "$LEGWORK_PATH")
else
    case "$(uname -s)-$(uname -m)" in
        Linux-x86_64) target=x86_64-unknown-linux-musl ;;
        Linux-aarch64) target=aarch64-unknown-linux-musl ;;
        Darwin-arm64) target=aarch64-apple-darwin ;;
        *) fail "there is no released binary for this runner; build one and name it with the input \`path\`" ;;
    esac
    version=${LEGWORK_VERSION:-${ACTION_REF:-}}
    version=${version#v}
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
        fail "which version? Use the action by a tag such as @v0.1.0, or set the input \`version\`"
    [ -n "${ACTION_REPOSITORY:-}" ] || fail "the repository of the action isn't known; set the input \`path\`"
    release=${GITHUB_SERVER_URL:-https://github.com}/$ACTION_REPOSITORY/releases/download/v$version
    archive=legwork-$target.tar.gz
    folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/legwork-XXXXXX")
    for file in "$archive" SHA256SUMS; do
        curl --fail --silent --show-error --location --retry 3 --max-time 300 --max-filesize 100000000 \
            --output "$folder/$file" "$release/$file" || fail "$release/$file can't be downloaded"
    done
    expected=$(awk -v name="$archive" '$2 == name || $2 == "*" name { print $1 }' "$folder/SHA256SUMS")
    sum=(sha256sum)
    command -v sha256sum > /dev/null || sum=(shasum --algorithm 256)
    actual=$("${sum[@]}" "$folder/$archive" | cut -d ' ' -f 1)
    [ -n "$expected" ] && [ "$expected" = "$actual" ] || fail "$archive isn't the file of the release: its checksum differs"
    tar --extract --gzip --no-same-owner --directory "$folder" --file "$folder/$archive"
    legwork=$folder/legwork-$target/legwork
fi
"$legwork" --version
echo "legwork=$legwork" >> "$GITHUB_OUTPUT"

# Without bubblewrap, `auto` uses landlock, and `off` nothing at all.
if [ "${LEGWORK_SANDBOX:-required}" != off ] && [ "$(uname -s)" = Linux ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo --non-interactive)
    if ! command -v bwrap > /dev/null; then
        { ${root[@]+"${root[@]}"} apt-get update --quiet &&
            ${root[@]+"${root[@]}"} apt-get install --quiet --yes --no-install-recommends bubblewrap; } > /dev/null ||
            echo "::warning::legwork: bubblewrap can't be installed"
    fi
    # Ubuntu keeps programs without a profile of their own from creating user namespaces.
    restriction=${LEGWORK_USERNS_RESTRICTION:-/proc/sys/kernel/apparmor_restrict_unprivileged_userns}
    if [ -e "$restriction" ] && [ "$(cat "$restriction")" != 0 ]; then
        ${root[@]+"${root[@]}"} sysctl --quiet --write kernel.apparmor_restrict_unprivileged_userns=0 ||
            echo "::warning::legwork: user namespaces stay restricted"
    fi
fi

#!/usr/bin/env bash
# Runs a map of 60 rows on a Slurm cluster of its own, kills a node and ten runs, and checks that every row finishes exactly once.
# It needs Debian's packages `slurm-wlm` and `munge`, which it installs if they are missing, and takes one to two minutes.
#
# LEGWORK is the program; default: target/debug/legwork, which is built first.
set -eu
cd "$(dirname "$0")/../.."

if [ -z "${LEGWORK:-}" ]; then
    cargo build --locked --quiet
    LEGWORK=$PWD/target/debug/legwork
fi
export PATH=$PATH:/usr/sbin:/sbin
missing=()
command -v slurmctld > /dev/null && command -v slurmd > /dev/null && command -v sbatch > /dev/null || missing+=(slurm-wlm)
command -v munged > /dev/null || missing+=(munge)
if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get > /dev/null; then
        echo "missing, and there is no apt-get to install them with: ${missing[*]}" >&2
        exit 1
    fi
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo --non-interactive)
    # A container has no init system that could start the daemons, and they aren't needed.
    ${root[@]+"${root[@]}"} apt-get update --quiet
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install --quiet --yes --no-install-recommends "${missing[@]}"
fi
exec python3 tests/engines/slurm.py "$LEGWORK"

#!/bin/bash
# The init process of the virtual machine of nfs.sh: server, clients and checks. A line of the table begins with `RESULT`.
export PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root NO_COLOR=1 LEGWORK_RECORD_KEY=0123456789abcdef0123456789abcdef
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
ip link set lo up
echo "VM UP"
failed=0
finish() {
    echo "VM DONE $failed"
    sync
    sleep 1
    poweroff -f
}
trap 'failed=1; finish' EXIT

for module in virtio_pci virtio_blk nfsd nfs nfsv3 nfsv4; do
    modprobe "$module"
done
for ((try = 0; try < 50; try++)); do
    [ -b /dev/vda ] && break
    sleep 0.2
done
mount -t ext4 /dev/vda /export || exit
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipefs /var/lib/nfs/rpc_pipefs
mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
# Right after its start, a server lets only clients of earlier have locks.
echo 10 > /proc/fs/nfsd/nfsv4leasetime
echo 10 > /proc/fs/nfsd/nfsv4gracetime
rpcbind -w
rpc.statd --no-notify
exportfs -ra
rpc.nfsd 8
rpc.mountd
echo "kernel $(uname -r)"

ROWS=16
CALLS=2
# The effect of each call has a name of its own, which the call's result in the record has, too.
effect() {
    printf "{ tool: bash, input: { command: 'id=\$(cat /proc/sys/kernel/random/uuid); mkdir fx/\$id; sleep %s; echo effect:\$id' } }" "$1"
}
job() {
    cat > "$1.yaml" <<END
name: $1
description: Makes folders.
model: replay/$1.script.yaml
inputs:
  n: { type: string, description: The row. }
parent:
  prompt: Row {{ inputs.n }}
  tools: [bash]
limits: { wall_clock: 10m }
END
}

# on CLIENT MOUNT COMMAND: runs a command as a client, in the folder of this part of the test.
on() {
    unshare -m -u --propagation private bash -c "
        hostname $1
        [ ! -e /tmp/boot-$1 ] || mount --bind /tmp/boot-$1 /proc/sys/kernel/random/boot_id
        mount -t nfs -o $2,nosharecache 127.0.0.1:$export /mnt/x || exit 99
        cd /mnt/x/$folder || exit 99
        $3
        code=\$?
        cd /
        umount /mnt/x
        exit \$code" < /dev/null
}
fail() {
    failed=1
    verdict="FAILED: $*"
    echo "$verdict"
}
# counts RECORDS...: what was done, and what the records say about it.
counts() {
    effects=$(ls fx | wc -l)
    recorded=$(cat "$@" | grep -o 'effect:[0-9a-f-]\{36\}' | sort -u | sed 's/effect://')
    unrecorded=0
    for id in $(ls fx); do
        case $recorded in *"$id"*) ;; *) unrecorded=$((unrecorded + 1)) ;; esac
    done
    interrupted=$(cat "$@" | grep -o '"no_result":"interrupted"' | wc -l)
}
# leftovers: leases in records that have ended, and what NFS clients make of files that are removed while they are open.
leftovers() {
    leases=$(find runs -name 'lease*' | wc -l)
    hidden=$(find . -name '.nfs*' | wc -l)
    [ "$leases" = 0 ] || fail "$leases leases are left: $(find runs -name 'lease*' | head -n 3)"
    [ "$hidden" = 0 ] || fail "$hidden .nfs files are left: $(find . -name '.nfs*' | head -n 3)"
}
row() { printf 'RESULT %-14s %-38s %-22s %-18s %s\n' "$@"; }
logs() { [ "$verdict" = ok ] || for log in "$@"; do echo "== $log"; tail -n 12 "/tmp/$log"; done; }

# part NAME MOUNT EXPORT
part() {
    export=$3
    folder=$1
    mkdir -p "/export/$folder/fx"
    cd "/export/$folder" || exit
    job one
    printf 'parent:\n  - calls: [%s]\n  - text: Done.\n' "$(effect 25)" > one.script.yaml
    job rows
    { echo parent:; for ((call = 0; call < CALLS; call++)); do printf '  - calls: [%s]\n' "$(effect 1)"; done; echo '  - text: Done.'; } \
        > rows.script.yaml
    { echo n; for ((n = 1; n <= ROWS; n++)); do echo "r$n"; done; } > rows.csv

    verdict=ok
    run="/opt/legwork run one.yaml --set n=1 --key one --sandbox off"
    on a "$2" "$run" > /tmp/a 2>&1 & a=$!
    on b "$2" "$run" > /tmp/b 2>&1 & b=$!
    wait $a; a=$?
    wait $b; b=$?
    on b "$2" "$run" > /tmp/again 2>&1; again=$?
    case "$a $b" in "0 75" | "75 0") ;; *) fail "the exit codes are $a and $b" ;; esac
    [ $again = 0 ] || fail "the stored answer's exit code is $again"
    counts runs/one/one/events.jsonl
    [ "$effects $unrecorded" = "1 0" ] || fail "$effects effects"
    leftovers
    row "$1" "run --key by two clients" "exit $a, $b, then $again" "$effects of 1 effects" "$verdict"
    logs a b again

    verdict=ok
    rm -rf fx; mkdir fx
    map="/opt/legwork map rows.yaml --rows rows.csv --id n --jobs 4 --isolate none --sandbox off --name"
    on a "$2" "$map two" > /tmp/a 2>&1 & a=$!
    on b "$2" "$map two" > /tmp/b 2>&1 & b=$!
    wait $a; a=$?
    wait $b; b=$?
    # One that has no other row left ends with 75 while the other one runs the last rows.
    case "$a $b" in "0 0" | "0 75" | "75 0") ;; *) fail "the exit codes are $a and $b" ;; esac
    on a "$2" "$map two" > /tmp/again 2>&1; again=$?
    [ $again = 0 ] || fail "the third start's exit code is $again"
    counts runs/rows/two/rows/*/events.jsonl
    results=$(ls runs/rows/two/rows/*/result.json | wc -l)
    [ "$results $effects $unrecorded $interrupted" = "$ROWS $((ROWS * CALLS)) 0 0" ] ||
        fail "$results rows, $effects effects, $unrecorded unrecorded, $interrupted interrupted"
    leftovers
    row "$1" "map by two clients" "exit $a, $b, then $again" "$effects of $((ROWS * CALLS)) effects" "$verdict"
    logs a b again

    verdict=ok
    rm -rf fx; mkdir fx
    on a "$2" "$map killed & echo \$! > /tmp/pid; wait" > /tmp/a 2>&1 & a=$!
    on b "$2" "$map killed" > /tmp/b 2>&1 & b=$!
    for ((try = 0; try < 600; try++)); do
        [ "$(ls fx | wc -l)" -ge $((ROWS * CALLS / 3)) ] && break
        sleep 0.1
    done
    kill -KILL "$(cat /tmp/pid)"
    wait $a
    on a "$2" "$map killed" > /tmp/a 2>&1; a=$?
    wait $b; b=$?
    case "$a $b" in "0 0" | "0 75" | "75 0" | "75 75") ;; *) fail "the exit codes are $a and $b" ;; esac
    on a "$2" "$map killed" > /tmp/again 2>&1; again=$?
    [ $again = 0 ] || fail "the last start's exit code is $again"
    counts runs/rows/killed/rows/*/events.jsonl
    results=$(ls runs/rows/killed/rows/*/result.json | wc -l)
    [ "$results" = $ROWS ] || fail "$results rows"
    for record in runs/rows/killed/rows/*; do
        ids=$(grep -o 'effect:[0-9a-f-]\{36\}' "$record/events.jsonl" | sort -u | wc -l)
        cut=$(grep -o '"no_result":"interrupted"' "$record/events.jsonl" | wc -l)
        [ $((ids + cut)) = $CALLS ] || fail "$record has $ids results and $cut interrupted calls"
    done
    # A call that was interrupted may have had its effect, and isn't made again.
    [ "$unrecorded" -le "$interrupted" ] || fail "$unrecorded effects of $interrupted interrupted calls"
    leftovers
    row "$1" "map, a client killed, started again" "exit $a, $b, then $again" "$effects of $((ROWS * CALLS)), $interrupted cut" "$verdict"
    logs a b again
    cd /
}

echo 00000000-0000-4000-8000-00000000000a > /tmp/boot-a
echo 00000000-0000-4000-8000-00000000000b > /tmp/boot-b
part nfs4.2 vers=4.2 /
part nfs3 vers=3 /export
rm /tmp/boot-a /tmp/boot-b
part nfs3-nolock vers=3,nolock /export
trap - EXIT
finish

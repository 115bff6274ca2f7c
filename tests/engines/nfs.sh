#!/usr/bin/env bash
# Proves on a real NFS server that processes of several machines can share a folder of records. A virtual machine exports a
# disk with the kernel's NFS server. Two clients mount it, each with mounts, a host name and a boot id of its own, and start the
# same keyed run and the same map at once. One client is killed in the middle of a second map and started again. No command may
# be run twice, no lease may stay in a record that has ended, and no `.nfs*` file anywhere. This is done with NFS 4.2, NFS 3, and
# NFS 3 without locks, where both clients have the same boot id, as two containers of one machine have.
#
# Run it by hand or at night: it takes about ten minutes without KVM. It needs an x86-64 machine with Debian or Ubuntu, and the
# packages `qemu-system-x86`, `busybox-static`, `e2fsprogs` and `cpio`, which it installs if they are missing. The server and
# the kernel are only unpacked into a temporary folder. Nothing of it needs root if those packages are there.
#
# LEGWORK is the program; default: target/debug/legwork, which is built first.
# DEBS is a folder with the server's packages (`apt-get download`), instead of downloading them.
set -eu
cd "$(dirname "$0")/../.."
engines=$PWD/tests/engines

if [ "$(uname -sm)" != "Linux x86_64" ] || ! command -v apt-get > /dev/null; then
    echo "this needs Debian or Ubuntu on x86-64" >&2
    exit 1
fi
if [ -z "${LEGWORK:-}" ]; then
    cargo build --locked --quiet
    LEGWORK=$PWD/target/debug/legwork
fi
export PATH=$PATH:/usr/sbin:/sbin
missing=()
command -v qemu-system-x86_64 > /dev/null || missing+=(qemu-system-x86)
command -v busybox > /dev/null && ! ldd "$(command -v busybox)" > /dev/null 2>&1 || missing+=(busybox-static)
command -v mkfs.ext4 > /dev/null || missing+=(e2fsprogs)
command -v cpio > /dev/null || missing+=(cpio)
if [ ${#missing[@]} -gt 0 ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo --non-interactive)
    ${root[@]+"${root[@]}"} apt-get update --quiet
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get install --quiet --yes --no-install-recommends "${missing[@]}"
fi

work=$(mktemp -d)
vm=
stop() {
    [ -n "$vm" ] || return 0
    kill -KILL "$vm" 2> /dev/null || true
    wait "$vm" 2> /dev/null || true
}
end() {
    stop
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# The kernel and the NFS server.
debs=${DEBS:-$work/debs}
if [ -z "${DEBS:-}" ]; then
    mkdir "$debs"
    depends() { apt-cache depends "$1" | sed -n "s/^ *Depends: \($2\)\$/\1/p" | head -n 1; }
    kernel=
    for meta in linux-image-cloud-amd64 linux-image-virtual; do
        [ -n "$kernel" ] || kernel=$(depends "$meta" 'linux-image-[0-9].*' 2> /dev/null)
    done
    packages=("${kernel:?no package of a kernel was found}" nfs-kernel-server nfs-common rpcbind)
    # Ubuntu's modules are a package of their own.
    modules=$(depends "$kernel" 'linux-modules-.*')
    [ -z "$modules" ] || packages+=("$modules")
    for package in nfs-kernel-server nfs-common rpcbind; do
        for library in $(apt-cache depends "$package" | sed -n 's/^ *Depends: \(lib[a-z0-9.-]*\|keyutils\)$/\1/p'); do
            case $library in libc6 | libmount* | libblkid* | libuuid*) ;; *) packages+=("$library") ;; esac
        done
    done
    (cd "$debs" && apt-get download --quiet $(printf '%s\n' "${packages[@]}" libtirpc-common | sort -u))
fi
unpacked=$work/unpacked
mkdir "$unpacked"
for deb in "$debs"/*.deb; do
    dpkg-deb --extract "$deb" "$unpacked"
done
image=$(find "$unpacked/boot" -name 'vmlinuz-*' | head -n 1)
release=${image##*/vmlinuz-}
modules=$(find "$unpacked" -type d -path "*/lib/modules/$release" | head -n 1)

# The files of the virtual machine, all in memory.
guest=$work/guest
mkdir -p "$guest"/{bin,sbin,usr/bin,usr/sbin,etc,proc,sys,dev,tmp,run,mnt/x,export,root,opt,var/lib/nfs/v4recovery,var/lib/nfs/rpc_pipefs}
LIBRARIES=$(find "$unpacked" -type d -path '*/lib/x86_64-linux-gnu' | paste -sd :)
# copy FILE PLACE: a program and its libraries.
copy() {
    cp -L "$1" "$guest$2"
    if LD_LIBRARY_PATH=$LIBRARIES ldd "$1" | grep 'not found'; then
        echo "libraries of $1 are missing" >&2
        exit 1
    fi
    LD_LIBRARY_PATH=$LIBRARIES ldd "$1" | grep -o '/[^ )]*' | while read -r library; do
        place=${library#"$unpacked"}
        mkdir -p "$guest${place%/*}"
        [ -e "$guest$place" ] || cp -L "$library" "$guest$place"
    done
}
cp "$(command -v busybox)" "$guest/bin/busybox"
copy "$(command -v bash)" /bin/bash
copy "$(command -v unshare)" /usr/bin/unshare
copy "$(command -v mount)" /usr/bin/mount
for program in rpcbind mount.nfs rpc.statd exportfs rpc.nfsd rpc.mountd; do
    copy "$(find "$unpacked" -path "*/sbin/$program" -o -path "*/bin/$program" | head -n 1)" "/sbin/$program"
done
copy "$LEGWORK" /opt/legwork
! command -v strip > /dev/null || strip --strip-debug "$guest/opt/legwork"
mkdir -p "$guest/lib/modules/$release/kernel"
for part in fs net/sunrpc net/dns_resolver drivers/virtio drivers/block crypto lib arch; do
    [ ! -e "$modules/kernel/$part" ] || (cd "$modules" && cp -r --parents "kernel/$part" "$guest/lib/modules/$release")
done
cp "$modules"/modules.* "$guest/lib/modules/$release"
busybox depmod -b "$guest" "$release"
cat > "$guest/etc/passwd" <<'END'
root:x:0:0::/root:/bin/bash
nobody:x:65534:65534::/:/bin/false
statd:x:107:65534::/var/lib/nfs:/bin/false
_rpc:x:108:65534::/run/rpcbind:/bin/false
END
printf 'root:x:0:\nnogroup:x:65534:\n' > "$guest/etc/group"
printf '127.0.0.1 localhost\n' > "$guest/etc/hosts"
printf 'tcp 6 TCP\nudp 17 UDP\n' > "$guest/etc/protocols"
printf '%s\n' 'nfs 2049/tcp' 'sunrpc 111/tcp portmapper' 'sunrpc 111/udp portmapper' 'mountd 20048/tcp' > "$guest/etc/services"
printf '%s\n' 'udp tpi_clts v inet udp - -' 'tcp tpi_cots_ord v inet tcp - -' 'local tpi_cots_ord - loopback - - -' \
    > "$guest/etc/netconfig"
printf '/export *(rw,no_root_squash,no_subtree_check,fsid=0,sync,insecure)\n' > "$guest/etc/exports"
install -m 755 "$engines/nfs-guest.sh" "$guest/init"
(cd "$guest" && find . | cpio --quiet -o -H newc | gzip -1) > "$work/initrd"
truncate -s 512M "$work/disk"
mkfs.ext4 -q -F "$work/disk"

# start ACCELERATOR
start() {
    qemu-system-x86_64 -accel "$1" -cpu max -m 3072 -smp 2 -kernel "$image" -initrd "$work/initrd" \
        -append "console=ttyS0 panic=-1 quiet" -drive "file=$work/disk,if=virtio,format=raw,cache=unsafe" \
        -nographic -no-reboot -nic none < /dev/null > "$work/log" 2>&1 &
    vm=$!
}
# ended SECONDS PATTERN: waits until the machine has ended or has printed that.
ended() {
    for ((second = 0; second < $1; second++)); do
        kill -0 "$vm" 2> /dev/null || return 0
        ! grep -aq "$2" "$work/log" || return 0
        sleep 1
    done
    return 1
}
# Where a virtual machine can't have machines of its own, KVM may be there and not work.
if [ -w /dev/kvm ]; then
    start kvm
    ended 30 'VM UP' || true
fi
if ! grep -aqs 'VM UP' "$work/log"; then
    stop
    start tcg,thread=multi
fi
if ! ended "${NFS_TIMEOUT:-1500}" 'VM DONE'; then
    echo "it took too long" >&2
fi
[ -z "${NFS_LOG:-}" ] || cp "$work/log" "$NFS_LOG"
tr -d '\r' < "$work/log" | sed -n 's/^RESULT //p'
if ! grep -aq '^VM DONE 0' "$work/log"; then
    echo "the last lines of the machine's console:" >&2
    tail -n 60 "$work/log" >&2
    exit 1
fi

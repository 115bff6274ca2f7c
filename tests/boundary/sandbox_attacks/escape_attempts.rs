//! All attacks, except those on protected paths.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use super::attack_fixture::{AttackFixture, SECRET, Tier, User, tiers};
use super::syscall_probes::{self, ESCAPED_MARK};
use super::users_and_tiers;

/// The users for whom an attack succeeds without a sandbox.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedOutside {
    /// All users.
    Succeeds,
    /// Only root.
    SucceedsAsRoot,
    /// Depends on the kernel's configuration or a container; some machines forbid it to all users.
    Unknown,
    /// Depends on the machine for root, and is forbidden to ordinary users.
    UnknownAsRoot,
}

/// A command that prints [`ESCAPED_MARK`] or the planted secret if it succeeds.
struct Attack(&'static str, ExpectedOutside, String);

/// Finds the runner of the job like an attacker: the parent of the command's supervisor, which has the same name.
const RUNNER: &str = "runner=$PPID; read -r name < /proc/$runner/comm; \
                      read -r _ _ _ above _ < /proc/$runner/stat; read -r upper < /proc/$above/comm; \
                      [ \"$upper\" = legwork ] && runner=$above; if [ \"$name\" != legwork ]; then runner=; \
                      for one in /proc/[0-9]*; do read -r name < $one/comm && [ \"$name\" = legwork ] && \
                      runner=${one#/proc/}; done; fi 2> /dev/null; [ -n \"$runner\" ] && ";

/// The attacks. They include kernel settings, except those of an IPC or process namespace.
fn attacks(place: &AttackFixture, network: &LocalServices) -> Vec<Attack> {
    use ExpectedOutside::{Succeeds, SucceedsAsRoot, Unknown, UnknownAsRoot};
    let shell = |name, control, command: &str| {
        let root = place.root().display().to_string();
        Attack(name, control, command.replace("ROOT", &root).replace("GOT", &format!("echo {ESCAPED_MARK}")))
    };
    let trial = |name, control, words: &str| Attack(name, control, syscall_probes::probe_command(words));
    let on_runner = |name, control, words: &str| {
        let command = syscall_probes::probe_command(&format!("{words} RUN")).replace("RUN'", "'$runner");
        Attack(name, control, format!("{RUNNER}{command}"))
    };
    vec![
        shell("read ~/.ssh", Succeeds, "cat ROOT/home/.ssh/id"),
        shell("read HOME", Succeeds, "cat ROOT/home/token ~/token"),
        shell("list HOME", Succeeds, "ls ROOT/home | grep -q token && GOT"),
        shell("read outside", Succeeds, "cat ROOT/outside/file"),
        shell("read by way of /proc", Succeeds, "cat /proc/self/root/ROOT/outside/file"),
        shell("read by way of a link", Succeeds, "ln -s ROOT/outside/file link; cat link; rm -f link"),
        shell("read shadow", SucceedsAsRoot, "grep -q root /etc/shadow && GOT"),
        shell("read other processes", UnknownAsRoot, "cat /proc/1/environ > /dev/null && [ $$ -gt 50 ] && GOT"),
        shell("hard link", Succeeds, "rm -f hard; ln ROOT/outside/file hard && GOT; rm -f hard"),
        shell("remount", SucceedsAsRoot, "mount -o remount,bind,rw / && GOT"),
        shell("mount", SucceedsAsRoot, "mkdir -p m; mount -t tmpfs none m && GOT; umount m"),
        shell("unshare", Unknown, "unshare --user --map-root-user true && GOT"),
        shell("unshare as root", SucceedsAsRoot, "unshare --net true && GOT"),
        shell("chroot", SucceedsAsRoot, "chroot / true && GOT"),
        shell("mknod", UnknownAsRoot, "rm -f dev; mknod dev c 1 3 && GOT; rm -f dev"),
        shell("hostname", SucceedsAsRoot, "hostname \"$(hostname)\" && GOT"),
        shell("the network's settings", UnknownAsRoot, "(: >> /proc/sys/net/ipv4/tcp_syncookies) && GOT"),
        shell("own devices", SucceedsAsRoot, "(: < /dev/kmsg) && GOT"),
        shell(
            "the runner's environment",
            SucceedsAsRoot,
            &format!("{RUNNER} cat /proc/$runner/environ > /dev/null && GOT"),
        ),
        shell("the runner's memory", SucceedsAsRoot, &format!("{RUNNER} (: < /proc/$runner/mem) && GOT")),
        shell("the runner's files", SucceedsAsRoot, &format!("{RUNNER} readlink /proc/$runner/cwd && GOT")),
        shell(
            "what crashes start",
            SucceedsAsRoot,
            "v=$(cat /proc/sys/kernel/core_pattern); echo \"$v\" > /proc/sys/kernel/core_pattern && GOT",
        ),
        shell(
            "the kernel's settings",
            SucceedsAsRoot,
            "for file in /proc/sys/kernel/* /proc/sys/vm/* /proc/sys/fs/*; do case $file in */msg*|*/sem|*/shm*|*/auto_msgmni|*/ns_last_pid|*/pid_max) continue;; esac; (: >> $file) 2> /dev/null && GOT; done",
        ),
        shell("signal to the runner", Succeeds, &format!("{RUNNER} kill -0 $runner && GOT")),
        shell(
            "signal to the supervisor",
            Succeeds,
            "read -r name < /proc/$PPID/comm && [ $name = legwork ] && kill -0 $PPID && GOT",
        ),
        shell(
            "the supervisor's memory",
            SucceedsAsRoot,
            "read -r name < /proc/$PPID/comm && [ $name = legwork ] && (: < /proc/$PPID/mem) && GOT",
        ),
        shell("TCP by bash", Succeeds, &format!("(: < /dev/tcp/127.0.0.1/{}) && GOT", network.port())),
        on_runner("ptrace", SucceedsAsRoot, "ptrace"),
        on_runner("process_vm_readv", SucceedsAsRoot, "process_vm"),
        on_runner("pidfd_getfd", SucceedsAsRoot, "pidfd"),
        on_runner("the runner's limits", Succeeds, "prlimit"),
        on_runner("the runner's nice value", Succeeds, "renice"),
        on_runner("the runner's processors", Succeeds, "affinity"),
        on_runner("the runner's scheduler", Succeeds, "scheduler"),
        on_runner("the runner's scheduler by its newer call", Succeeds, "sched_attr"),
        on_runner("the runner's input and output priority", Succeeds, "ioprio"),
        trial("others' shared memory by number", Succeeds, &format!("shmctl {}", network.system_v.memory)),
        trial("others' queues by number", Succeeds, &format!("msgctl {}", network.system_v.queue)),
        trial("messages to others' queues", Succeeds, &format!("msgsnd {}", network.system_v.queue)),
        trial("messages of others' queues", Succeeds, &format!("msgrcv {}", network.system_v.queue)),
        trial("others' semaphores by number", Succeeds, &format!("semctl {}", network.system_v.semaphores)),
        trial("others' semaphores", Succeeds, &format!("semop {}", network.system_v.semaphores)),
        trial("TCP", Succeeds, &format!("tcp 127.0.0.1:{}", network.port())),
        trial("unix socket", Succeeds, &format!("unix {}", place.root().join("outside/service.sock").display())),
        trial(
            "unix socket in the workspace",
            Succeeds,
            &format!("unix {}", place.workspace().join("service.sock").display()),
        ),
        trial(
            "datagram to a unix socket",
            Succeeds,
            &format!("datagram {}", place.root().join("outside/datagrams.sock").display()),
        ),
        trial(
            "datagram to a unix socket in the workspace",
            Succeeds,
            &format!("datagram {}", place.workspace().join("datagrams.sock").display()),
        ),
        trial("abstract unix socket", Succeeds, &format!("abstract {}", network.name)),
        trial("raw socket", SucceedsAsRoot, "socket 2 3 1"),
        trial("packet socket", SucceedsAsRoot, "socket 17 3 768"),
        trial("packet socket by its old name", SucceedsAsRoot, "socket 2 10 768"),
        trial("vsock", Unknown, "socket 40 1 0"),
        trial("netlink", Succeeds, "socket 16 3 15"),
        trial("generic netlink", Succeeds, "socket 16 3 16"),
        trial("kernel's cryptography", Unknown, "socket 38 5 0"),
        trial("keyring", Unknown, "add_key"),
        trial("session keyring", Unknown, "keyctl"),
        trial("io_uring", Unknown, "io_uring"),
        trial("userfaultfd", Unknown, "userfaultfd"),
        trial("perf", UnknownAsRoot, "perf"),
        trial("bpf", UnknownAsRoot, "bpf"),
        trial("user namespace", Unknown, "clone"),
        trial("32-bit calls", Unknown, "other_architecture"),
        trial("x32 calls", Unknown, "x32"),
        trial("file by handle", UnknownAsRoot, &format!("handle {}", place.root().join("outside/file").display())),
    ]
}

/// Services that listen on this machine.
struct LocalServices {
    tcp: TcpListener,
    name: String,
    system_v: syscall_probes::SystemVObjects,
    _unix: Vec<UnixListener>,
    _datagrams: Vec<UnixDatagram>,
}

impl LocalServices {
    fn start(place: &AttackFixture) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let clone = tcp.try_clone().unwrap();
        std::thread::spawn(move || {
            for mut stream in clone.incoming().flatten() {
                let _ = stream.write_all(b"x");
            }
        });
        let name = format!("legwork-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let files = ["outside/service.sock", "work/service.sock"];
        let datagrams = ["outside/datagrams.sock", "work/datagrams.sock"];
        let datagrams = datagrams.map(|name| UnixDatagram::bind(place.root().join(name)).unwrap()).into();
        let mut unix = vec![UnixListener::bind_addr(&address).unwrap()];
        unix.extend(files.map(|name| UnixListener::bind(place.root().join(name)).unwrap()));
        Self { tcp, name, system_v: syscall_probes::SystemVObjects::new(), _unix: unix, _datagrams: datagrams }
    }

    fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }
}

/// The attacks that succeed.
fn successful_attacks(
    place: &AttackFixture,
    tier: Tier,
    attacks: &[Attack],
) -> Vec<(&'static str, ExpectedOutside, bool, String)> {
    let commands: Vec<String> = attacks.iter().map(|attack| attack.2.clone()).collect();
    let outputs = place.outputs(tier, &commands);
    attacks
        .iter()
        .zip(outputs)
        .map(|(attack, output)| {
            let success = output.contains(ESCAPED_MARK) || output.contains(SECRET);
            (attack.0, attack.1, success, output)
        })
        .collect()
}

fn check(user: User) {
    let known = tiers(user);
    if known.is_empty() {
        return;
    }
    let place = AttackFixture::new(user).unwrap().with_probe();
    let network = LocalServices::start(&place);
    let attacks = attacks(&place, &network);
    let mut wrong = Vec::new();
    for (name, control, success, output) in successful_attacks(&place, Tier::Off, &attacks) {
        let must = match control {
            ExpectedOutside::Succeeds => true,
            ExpectedOutside::SucceedsAsRoot => user.is_root(),
            ExpectedOutside::Unknown | ExpectedOutside::UnknownAsRoot => false,
        };
        let may = control == ExpectedOutside::Unknown || control == ExpectedOutside::UnknownAsRoot && user.is_root();
        if must && !success {
            wrong.push(format!("{user:?} can't do this where nothing confines it: {name}: {output}"));
        } else if may && !success {
            eprintln!("without a control: this machine itself prevents {user:?} from: {name}");
        }
    }
    for tier in known {
        for (name, _, success, output) in successful_attacks(&place, *tier, &attacks) {
            if success {
                wrong.push(format!("{user:?} in {tier:?}: {name}: {output}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn attacks_as_the_current_user_fail() {
    check(User::Current);
}

#[test]
fn attacks_as_an_ordinary_user_fail() {
    check(User::Unprivileged);
}

#[test]
fn an_open_network_does_not_open_abstract_sockets() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap().with_probe();
        place.edit_job("network: none", "network: open");
        let network = LocalServices::start(&place);
        let commands = [
            syscall_probes::probe_command(&format!("abstract {}", network.name)),
            format!("(: < /dev/tcp/127.0.0.1/{}) && echo connected", network.port()),
        ];
        assert!(place.outputs(Tier::Off, &commands)[0].contains(ESCAPED_MARK), "nothing confines it there");
        let outputs = place.outputs(tier, &commands);
        assert!(!outputs[0].contains(ESCAPED_MARK), "{user:?} in {tier:?}: {}", outputs[0]);
        assert!(outputs[1].contains("connected"), "{user:?} in {tier:?}: {}", outputs[1]);
    }
}

/// Commands that write, change or remove files around the workspace succeed only without a sandbox.
#[test]
fn no_marker_is_left_outside() {
    let mut seen_without = 0;
    for user in super::USERS {
        let known = tiers(user);
        for tier in known.iter().chain((!known.is_empty()).then_some(&Tier::Off)) {
            let place = AttackFixture::new(user).unwrap();
            let mark = format!("legwork-test-mark-{}-{user:?}-{tier:?}", std::process::id());
            let around = ["outside", "home", "."].map(|name| place.root().join(name));
            let shared = ["/tmp", "/var/tmp", "/dev/shm"].map(std::path::PathBuf::from);
            let file = place.root().join("outside/file");
            let before = std::fs::metadata(&file).unwrap();
            let mut commands: Vec<String> =
                around.iter().chain(&shared).map(|folder| format!("echo x > {}/{mark}", folder.display())).collect();
            commands.push(format!("chmod 777 {}", file.display()));
            commands.push(format!("touch -d 2001-02-03 {}", file.display()));
            commands.push(format!("chmod 711 {}/outside; cd ../outside && chmod 600 file", place.root().display()));
            commands.push(format!("mv {0} {0}2; rm -rf {0}; truncate -s 0 {0}", file.display()));
            place.outputs(*tier, &commands);
            let mut marks = 0;
            for folder in around.iter().chain(&shared) {
                let path = folder.join(&mark);
                if path.exists() {
                    marks += 1;
                    std::fs::remove_file(path).unwrap();
                }
            }
            let after = std::fs::metadata(&file).ok();
            let state = |of: &std::fs::Metadata| (of.mode(), of.mtime(), of.size(), of.ino());
            let changed = after.as_ref().map(state) != Some(state(&before));
            if *tier == Tier::Off {
                seen_without += usize::from(marks >= 4 && changed);
            } else {
                assert_eq!((marks, changed), (0, false), "{user:?} in {tier:?}");
            }
        }
        if !known.is_empty() {
            assert!(seen_without > 0, "{user:?} leaves no marks even where nothing confines it");
        }
    }
}

#[test]
fn commands_have_no_capabilities_and_gain_no_privileges() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap();
        let who = place.setuid_program();
        let lender = "cp /bin/sh lent; chmod 4755 lent; chmod u+s lent; touch made; chmod g+s made; ls -l lent made";
        let commands = [
            "cat /proc/self/status".to_owned(),
            format!("{} -u", who.display()),
            lender.to_owned(),
            "capsh --print".into(),
        ];
        let outputs = place.outputs(tier, &commands);
        let field = |name: &str| {
            let line = outputs[0].lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap_or_default();
            line.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            // An ordinary user can't empty the bounding set. Without new privileges, that set grants nothing.
            if set != "CapBnd" || tier == Tier::Bubblewrap || user.is_root() {
                assert_eq!(field(set), "0000000000000000", "{user:?} in {tier:?}: {set}");
            }
        }
        assert_eq!(field("NoNewPrivs"), "1", "{user:?} in {tier:?}");
        assert_eq!(field("Seccomp"), "2", "{user:?} in {tier:?}");
        if user == User::Unprivileged {
            assert_ne!(outputs[1].trim(), "0", "{user:?} in {tier:?}");
        }
        for name in ["lent", "made"] {
            let mode = std::fs::metadata(place.workspace().join(name)).unwrap().mode();
            assert_eq!(mode & 0o6000, 0, "{user:?} in {tier:?}: {name}: {mode:o}");
        }
    }
}

#[test]
fn the_network_is_closed_or_open_and_services_are_closed() {
    for (user, tier) in users_and_tiers() {
        let place = AttackFixture::new(user).unwrap().with_probe();
        let network = LocalServices::start(&place);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let commands = [
            syscall_probes::probe_command(&format!("udp {}", socket.local_addr().unwrap())),
            syscall_probes::probe_command(&format!("tcp 127.0.0.1:{}", network.port())),
        ];
        let closed = place.outputs(tier, &commands);
        assert!(socket.recv(&mut [0]).is_err(), "{user:?} in {tier:?}");
        assert!(!closed[1].contains(ESCAPED_MARK), "{user:?} in {tier:?}");
        place.edit_job("network: none", "network: open");
        let open = place.outputs(tier, &commands);
        assert!(socket.recv(&mut [0]).is_ok(), "{user:?} in {tier:?}: {open:?}");
        assert!(open[1].contains(ESCAPED_MARK), "{user:?} in {tier:?}: {open:?}");
        let service = place.root().join("outside/service.sock");
        let services = place.outputs(tier, &[syscall_probes::probe_command(&format!("unix {}", service.display()))]);
        assert!(!services[0].contains(ESCAPED_MARK), "an open network opens no services: {user:?} in {tier:?}");
    }
}

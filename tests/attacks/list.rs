//! The attacks, but for those on protected paths.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use super::everywhere;
use super::place::{Place, SECRET, Tier, User, tiers};
use super::probe::{self, GOT_IN};

/// Who can do it where nothing confines anyone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    /// Everyone.
    Anyone,
    /// Root.
    Root,
    /// Some machines forbid it to all, by how the kernel was built or a container is confined.
    Depends,
    /// Some machines forbid it, and to ordinary users all do.
    RootDepends,
}

/// A command that prints [`GOT_IN`] or the planted secret where it succeeds.
struct Attack(&'static str, Control, String);

/// The process that runs the job, as far as a command can find it: the parent of the command's supervisor, which has the same
/// name.
const RUNNER: &str = "runner=$PPID; read -r name < /proc/$runner/comm; \
                      read -r _ _ _ above _ < /proc/$runner/stat; read -r upper < /proc/$above/comm; \
                      [ \"$upper\" = legwork ] && runner=$above; if [ \"$name\" != legwork ]; then runner=; \
                      for one in /proc/[0-9]*; do read -r name < $one/comm && [ \"$name\" = legwork ] && \
                      runner=${one#/proc/}; done; fi 2> /dev/null; [ -n \"$runner\" ] && ";

/// Settings of the kernel are tried but for those that each IPC or process namespace has for itself.
fn attacks(place: &Place, network: &Network) -> Vec<Attack> {
    use Control::{Anyone, Depends, Root, RootDepends};
    let shell = |name, control, command: &str| {
        let root = place.root().display().to_string();
        Attack(name, control, command.replace("ROOT", &root).replace("GOT", &format!("echo {GOT_IN}")))
    };
    let trial = |name, control, words: &str| Attack(name, control, probe::command(words));
    let on_runner = |name, control, words: &str| {
        let command = probe::command(&format!("{words} RUN")).replace("RUN'", "'$runner");
        Attack(name, control, format!("{RUNNER}{command}"))
    };
    vec![
        shell("read ~/.ssh", Anyone, "cat ROOT/home/.ssh/id"),
        shell("read HOME", Anyone, "cat ROOT/home/token ~/token"),
        shell("list HOME", Anyone, "ls ROOT/home | grep -q token && GOT"),
        shell("read outside", Anyone, "cat ROOT/outside/file"),
        shell("read by way of /proc", Anyone, "cat /proc/self/root/ROOT/outside/file"),
        shell("read by way of a link", Anyone, "ln -s ROOT/outside/file link; cat link; rm -f link"),
        shell("read shadow", Root, "grep -q root /etc/shadow && GOT"),
        shell("read other processes", RootDepends, "cat /proc/1/environ > /dev/null && [ $$ -gt 50 ] && GOT"),
        shell("hard link", Anyone, "rm -f hard; ln ROOT/outside/file hard && GOT; rm -f hard"),
        shell("remount", Root, "mount -o remount,bind,rw / && GOT"),
        shell("mount", Root, "mkdir -p m; mount -t tmpfs none m && GOT; umount m"),
        shell("unshare", Depends, "unshare --user --map-root-user true && GOT"),
        shell("unshare as root", Root, "unshare --net true && GOT"),
        shell("chroot", Root, "chroot / true && GOT"),
        shell("mknod", RootDepends, "rm -f dev; mknod dev c 1 3 && GOT; rm -f dev"),
        shell("hostname", Root, "hostname \"$(hostname)\" && GOT"),
        shell("the network's settings", RootDepends, "(: >> /proc/sys/net/ipv4/tcp_syncookies) && GOT"),
        shell("own devices", Root, "(: < /dev/kmsg) && GOT"),
        shell("the runner's environment", Root, &format!("{RUNNER} cat /proc/$runner/environ > /dev/null && GOT")),
        shell("the runner's memory", Root, &format!("{RUNNER} (: < /proc/$runner/mem) && GOT")),
        shell("the runner's files", Root, &format!("{RUNNER} readlink /proc/$runner/cwd && GOT")),
        shell(
            "what crashes start",
            Root,
            "v=$(cat /proc/sys/kernel/core_pattern); echo \"$v\" > /proc/sys/kernel/core_pattern && GOT",
        ),
        shell(
            "the kernel's settings",
            Root,
            "for file in /proc/sys/kernel/* /proc/sys/vm/* /proc/sys/fs/*; do case $file in */msg*|*/sem|*/shm*|*/auto_msgmni|*/ns_last_pid|*/pid_max) continue;; esac; (: >> $file) 2> /dev/null && GOT; done",
        ),
        shell("signal to the runner", Anyone, &format!("{RUNNER} kill -0 $runner && GOT")),
        shell(
            "signal to the supervisor",
            Anyone,
            "read -r name < /proc/$PPID/comm && [ $name = legwork ] && kill -0 $PPID && GOT",
        ),
        shell(
            "the supervisor's memory",
            Root,
            "read -r name < /proc/$PPID/comm && [ $name = legwork ] && (: < /proc/$PPID/mem) && GOT",
        ),
        shell("TCP by bash", Anyone, &format!("(: < /dev/tcp/127.0.0.1/{}) && GOT", network.port())),
        on_runner("ptrace", Root, "ptrace"),
        on_runner("process_vm_readv", Root, "process_vm"),
        on_runner("pidfd_getfd", Root, "pidfd"),
        on_runner("the runner's limits", Anyone, "prlimit"),
        on_runner("the runner's nice value", Anyone, "renice"),
        on_runner("the runner's processors", Anyone, "affinity"),
        on_runner("the runner's scheduler", Anyone, "scheduler"),
        on_runner("the runner's scheduler by its newer call", Anyone, "sched_attr"),
        on_runner("the runner's input and output priority", Anyone, "ioprio"),
        trial("others' shared memory by number", Anyone, &format!("shmctl {}", network.system_v.memory)),
        trial("others' queues by number", Anyone, &format!("msgctl {}", network.system_v.queue)),
        trial("messages to others' queues", Anyone, &format!("msgsnd {}", network.system_v.queue)),
        trial("messages of others' queues", Anyone, &format!("msgrcv {}", network.system_v.queue)),
        trial("others' semaphores by number", Anyone, &format!("semctl {}", network.system_v.semaphores)),
        trial("others' semaphores", Anyone, &format!("semop {}", network.system_v.semaphores)),
        trial("TCP", Anyone, &format!("tcp 127.0.0.1:{}", network.port())),
        trial("unix socket", Anyone, &format!("unix {}", place.root().join("outside/service.sock").display())),
        trial(
            "unix socket in the workspace",
            Anyone,
            &format!("unix {}", place.workspace().join("service.sock").display()),
        ),
        trial("abstract unix socket", Anyone, &format!("abstract {}", network.name)),
        trial("raw socket", Root, "socket 2 3 1"),
        trial("packet socket", Root, "socket 17 3 768"),
        trial("packet socket by its old name", Root, "socket 2 10 768"),
        trial("vsock", Depends, "socket 40 1 0"),
        trial("netlink", Anyone, "socket 16 3 15"),
        trial("generic netlink", Anyone, "socket 16 3 16"),
        trial("kernel's cryptography", Depends, "socket 38 5 0"),
        trial("keyring", Depends, "add_key"),
        trial("session keyring", Depends, "keyctl"),
        trial("io_uring", Depends, "io_uring"),
        trial("userfaultfd", Depends, "userfaultfd"),
        trial("perf", RootDepends, "perf"),
        trial("bpf", RootDepends, "bpf"),
        trial("user namespace", Depends, "clone"),
        trial("32-bit calls", Depends, "other_architecture"),
        trial("x32 calls", Depends, "x32"),
        trial("file by handle", RootDepends, &format!("handle {}", place.root().join("outside/file").display())),
    ]
}

/// What listens on this machine.
struct Network {
    tcp: TcpListener,
    name: String,
    system_v: probe::SystemV,
    _unix: Vec<UnixListener>,
}

impl Network {
    fn start(place: &Place) -> Self {
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
        let mut unix = vec![UnixListener::bind_addr(&address).unwrap()];
        unix.extend(files.map(|name| UnixListener::bind(place.root().join(name)).unwrap()));
        Self { tcp, name, system_v: probe::SystemV::new(), _unix: unix }
    }

    fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }
}

/// Which of the attacks succeed.
fn succeeding(place: &Place, tier: Tier, attacks: &[Attack]) -> Vec<(&'static str, Control, bool, String)> {
    let commands: Vec<String> = attacks.iter().map(|attack| attack.2.clone()).collect();
    let outputs = place.outputs(tier, &commands);
    attacks
        .iter()
        .zip(outputs)
        .map(|(attack, output)| {
            let success = output.contains(GOT_IN) || output.contains(SECRET);
            (attack.0, attack.1, success, output)
        })
        .collect()
}

fn check(user: User) {
    let known = tiers(user);
    if known.is_empty() {
        return;
    }
    let place = Place::new(user).unwrap();
    let network = Network::start(&place);
    let attacks = attacks(&place, &network);
    let mut wrong = Vec::new();
    for (name, control, success, output) in succeeding(&place, Tier::Off, &attacks) {
        let must = match control {
            Control::Anyone => true,
            Control::Root => user.is_root(),
            Control::Depends | Control::RootDepends => false,
        };
        let may = control == Control::Depends || control == Control::RootDepends && user.is_root();
        if must && !success {
            wrong.push(format!("{user:?} can't do this where nothing confines it: {name}: {output}"));
        } else if may && !success {
            eprintln!("without a control: this machine itself prevents {user:?} from: {name}");
        }
    }
    for tier in known {
        for (name, _, success, output) in succeeding(&place, *tier, &attacks) {
            if success {
                wrong.push(format!("{user:?} in {tier:?}: {name}: {output}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn whoever_runs_the_tests_gets_nowhere() {
    check(User::Same);
}

#[test]
fn an_ordinary_user_gets_nowhere() {
    check(User::Somebody);
}

#[test]
fn an_open_network_does_not_open_abstract_sockets() {
    for (user, tier) in everywhere() {
        let place = Place::new(user).unwrap();
        place.job("network: none", "network: open");
        let network = Network::start(&place);
        let commands = [
            probe::command(&format!("abstract {}", network.name)),
            format!("(: < /dev/tcp/127.0.0.1/{}) && echo connected", network.port()),
        ];
        assert!(place.outputs(Tier::Off, &commands)[0].contains(GOT_IN), "nothing confines it there");
        let outputs = place.outputs(tier, &commands);
        assert!(!outputs[0].contains(GOT_IN), "{user:?} in {tier:?}: {}", outputs[0]);
        assert!(outputs[1].contains("connected"), "{user:?} in {tier:?}: {}", outputs[1]);
    }
}

/// What commands do to the files around the workspace: the file, and what it shows.
#[test]
fn no_mark_is_left_outside() {
    let mut seen_without = 0;
    for user in super::USERS {
        let known = tiers(user);
        for tier in known.iter().chain((!known.is_empty()).then_some(&Tier::Off)) {
            let place = Place::new(user).unwrap();
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
    for (user, tier) in everywhere() {
        let place = Place::new(user).unwrap();
        let who = place.set_user_id_program();
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
            // An ordinary user can't empty the bounding set; with no new privileges it gives nothing.
            if set != "CapBnd" || tier == Tier::Bubblewrap || user.is_root() {
                assert_eq!(field(set), "0000000000000000", "{user:?} in {tier:?}: {set}");
            }
        }
        assert_eq!(field("NoNewPrivs"), "1", "{user:?} in {tier:?}");
        assert_eq!(field("Seccomp"), "2", "{user:?} in {tier:?}");
        if user == User::Somebody {
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
    for (user, tier) in everywhere() {
        let place = Place::new(user).unwrap();
        let network = Network::start(&place);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let commands = [
            probe::command(&format!("udp {}", socket.local_addr().unwrap())),
            probe::command(&format!("tcp 127.0.0.1:{}", network.port())),
        ];
        let closed = place.outputs(tier, &commands);
        assert!(socket.recv(&mut [0]).is_err(), "{user:?} in {tier:?}");
        assert!(!closed[1].contains(GOT_IN), "{user:?} in {tier:?}");
        place.job("network: none", "network: open");
        let open = place.outputs(tier, &commands);
        assert!(socket.recv(&mut [0]).is_ok(), "{user:?} in {tier:?}: {open:?}");
        assert!(open[1].contains(GOT_IN), "{user:?} in {tier:?}: {open:?}");
        let service = place.root().join("outside/service.sock");
        let services = place.outputs(tier, &[probe::command(&format!("unix {}", service.display()))]);
        assert!(!services[0].contains(GOT_IN), "an open network opens no services: {user:?} in {tier:?}");
    }
}

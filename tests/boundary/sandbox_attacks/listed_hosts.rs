//! Attacks by a command that may reach one host by its name.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;

use super::attack_fixture::{AttackFixture, Tier, outputs};
use super::syscall_probes::{ESCAPED_MARK, probe_command};
use super::users_and_tiers;
use crate::running::run_failures::wait_until;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host that answers each line with `pong`, and says what it got from each connection at its end.
fn host() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut all = String::new();
                let mut reader = BufReader::new(&stream);
                while let Ok(1..) = reader.read_line(&mut all) {
                    let _ = (&stream).write_all(b"pong\n");
                }
                let _ = sender.send(all);
            });
        }
    });
    (port, received)
}

/// A command that opens a connection to the host as descriptor 3, in any tier.
const OPEN: &str = "if [ \"$https_proxy\" ]; then p=${https_proxy#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:}; \
                    printf 'CONNECT a.example.com:7000 HTTP/1.1\\r\\n\\r\\n' >&3; read -r x <&3; read -r x <&3; \
                    else exec 3<>/dev/tcp/a.example.com/7000; fi";

fn fixture(user: super::User) -> AttackFixture {
    let place = AttackFixture::new(user).unwrap();
    place.edit_job("network: none", "network: { allow: ['a.example.com:7000'] }");
    place
}

#[test]
fn only_the_listed_host_is_reached() {
    for (user, tier) in users_and_tiers() {
        let place = fixture(user);
        let (port, received) = host();
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        service.set_nonblocking(true).unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let path = place.root().join("outside/datagrams.sock");
        let unix = UnixDatagram::bind(&path).unwrap();
        place.chown_all();
        unix.set_nonblocking(true).unwrap();
        let trials = [
            format!("tcp {}", service.local_addr().unwrap()),
            format!("tcp 127.0.0.1:{port}"),
            format!("udp {}", udp.local_addr().unwrap()),
            format!("datagram {}", path.display()),
            "socket 1 1 0".to_owned(),
            "socket 2 3 1".to_owned(),
            "socket 17 3 768".to_owned(),
            "socket 40 1 0".to_owned(),
            "socket 16 3 16".to_owned(),
            "socket 2 1 262".to_owned(),
            "io_uring".to_owned(),
            "x32".to_owned(),
        ];
        let reach = format!("{OPEN}; echo hello >&3; read -r -t 20 x <&3; echo \"$x\"");
        let commands: Vec<String> = trials.iter().map(|trial| probe_command(trial)).chain([reach]).collect();
        let program = place.program(tier, &commands.iter().map(|command| with_path(command)).collect::<Vec<_>>());
        let ended = program.arg("--connect-to").arg(format!(":7000:127.0.0.1:{port}")).run();
        let events = ended.assert_code(0).run_folder().events();
        let outputs: Vec<String> = outputs(&events).collect();
        let (reached, attacks) = outputs.split_last().unwrap();
        assert!(reached.starts_with("pong"), "{user:?} in {tier:?}: {outputs:?}");
        for (trial, output) in trials.iter().zip(attacks) {
            // In a namespace of its own, sockets reach only its loopback interface.
            let is_harmless = tier == Tier::Bubblewrap && (trial.starts_with("udp") || trial == "socket 2 1 262");
            assert!(is_harmless || !output.contains(ESCAPED_MARK), "{user:?} in {tier:?}: {trial}: {output}");
        }
        assert!(service.accept().is_err() && udp.recv(&mut [0]).is_err() && unix.recv(&mut [0]).is_err());
        assert_eq!(received.recv_timeout(PATIENCE).unwrap(), "hello\n");
    }
}

/// With landlock, the program has no PATH.
fn with_path(command: &str) -> String {
    format!("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; {command}; :")
}

#[test]
fn nothing_is_left_of_a_connection_if_legwork_is_killed() {
    for (user, tier) in users_and_tiers() {
        let place = fixture(user);
        let (port, received) = host();
        let alive = place.workspace().join("alive");
        let command = format!(
            "{OPEN}; echo hello >&3; read -r x <&3; echo $x > reached; \
             while :; do echo more >&3; read -r x <&3; : > alive; sleep 0.05; done"
        );
        let program = place.program(tier, &[with_path(&command)]);
        let running = program.arg("--connect-to").arg(format!(":7000:127.0.0.1:{port}")).spawn();
        wait_until(|| place.workspace().join("reached").exists());
        running.signal(Signal::KILL);
        running.wait();
        // The connection ends, and the command does.
        assert!(received.recv_timeout(PATIENCE).unwrap().starts_with("hello\n"), "{user:?} in {tier:?}");
        wait_until(|| {
            let _ = std::fs::remove_file(&alive);
            std::thread::sleep(Duration::from_millis(300));
            !alive.exists()
        });
    }
}

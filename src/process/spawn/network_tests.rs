//! Commands that may reach hosts by name, in the tier `bubblewrap`. The hosts are servers of the tests.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::egress::{
    CallTraffic, Egress, EgressRules, HostRule, NetworkAccess, Refused, RefusedReason, UploadMeter, Used,
};
use crate::process::RunDeadline;
use crate::redaction::Redactor;
use crate::sandbox::allowed_changes::AllowedChanges;
use crate::sandbox::{GuardedFiles, ObjectStages, SandboxMode, SandboxPolicy};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on this machine. It answers what it gets by `answer`, and sends each connection's bytes at its end.
struct Server {
    port: u16,
    received: Receiver<Vec<u8>>,
}

impl Server {
    fn start(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Clone + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, received) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sender, answer) = (sender.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &sender, answer));
            }
        });
        Self { port, received }
    }

    fn echo() -> Self {
        Self::start(<[u8]>::to_vec)
    }

    fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.recv_timeout(PATIENCE).unwrap()).into_owned()
    }

    fn received_nothing(&self) -> bool {
        self.received.recv_timeout(Duration::from_millis(50)).is_err()
    }
}

fn serve(mut stream: TcpStream, sender: &Sender<Vec<u8>>, answer: impl Fn(&[u8]) -> Vec<u8>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        all.extend_from_slice(&buffer[..count]);
        if stream.write_all(&answer(&buffer[..count])).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    let _ = sender.send(all);
}

/// A sandbox whose commands may reach some hosts.
struct Lab {
    folder: tempfile::TempDir,
    sandbox: Sandbox,
}

impl Lab {
    /// `None` without bubblewrap.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = std::env::split_paths("/usr/local/bin:/usr/bin:/bin").collect();
        let policy = SandboxPolicy {
            workspace: folder.path().canonicalize().unwrap(),
            protected: vec![],
            protected_links: vec![],
            allowed_changes: AllowedChanges::default(),
            network: NetworkAccess::Hosts,
            readable: vec![],
            writable: vec![],
            hidden_files: vec![],
            home: None,
            path_dirs: path,
            object_stages: ObjectStages::default(),
            guarded_files: GuardedFiles::default(),
        };
        match Sandbox::detect(SandboxMode::Required, policy) {
            Ok(sandbox) => Some(Self { folder, sandbox }),
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    /// Runs a command: its output and exit code, and what it has reached.
    async fn run(&self, egress: &Egress, command: &str) -> (String, Option<i32>, CallTraffic) {
        let call = egress.call();
        let shell_command = ShellCommand {
            command,
            shell_options: &[],
            workspace: &Workspace::open(self.folder.path(), Vec::new(), Vec::new()).unwrap(),
            environment: &Environment::new(&BTreeMap::new(), &[], &[]),
            sandbox: &self.sandbox,
            read_only: false,
            egress: Some(&call),
            timeout: PATIENCE,
            max_processes: 1_000,
            limits: &CallLimits { deadline: RunDeadline::after(PATIENCE), cancel: CancellationToken::new() },
        };
        let mut output = CommandOutput::new(&Redactor::default(), 10_000);
        let outcome = shell_command.run(&mut output).await.unwrap();
        (output.finish().trim_end().to_owned(), outcome.exit_code(), call.take_traffic())
    }
}

/// A way out with this list, where each name leads to a place on this machine.
fn egress(list: &[&str], places: &[(&str, &Server)]) -> Egress {
    limited(list, places, UploadMeter::default())
}

fn limited(list: &[&str], places: &[(&str, &Server)], upload: UploadMeter) -> Egress {
    let list = list.iter().flat_map(|entry| HostRule::parse_entry(entry).unwrap()).collect();
    let connect_to = places.iter().map(|(host, server)| format!("{host}:127.0.0.1:{}", server.port).parse().unwrap());
    Egress::new(EgressRules { list, connect_to: connect_to.collect(), ..EgressRules::default() }, upload)
}

fn refusal(host: &str, port: impl Into<Option<u16>>, reason: RefusedReason) -> Refused {
    Refused { host: host.to_owned(), port: port.into(), reason, count: 1 }
}

fn used(traffic: &CallTraffic) -> Vec<(String, u16, u64, u64, u64)> {
    let each = |used: &Used| (used.host.to_string(), used.port, used.connections, used.sent_bytes, used.received_bytes);
    traffic.used.iter().map(each).collect()
}

#[tokio::test]
async fn a_host_of_the_list_is_reached_by_its_name() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::echo();
    let egress = egress(&["a.test:9000", "*.b.test:9000"], &[(":9000", &server)]);
    let script = "exec 3<>/dev/tcp/A.test/9000; echo hello >&3; read -r x <&3; echo \"got $x\"; \
                  echo bye > /dev/tcp/x.y.b.test/9000";
    let (output, code, traffic) = lab.run(&egress, script).await;
    assert_eq!((output.as_str(), code), ("got hello", Some(0)));
    let mut received = [server.received(), server.received()];
    received.sort();
    assert_eq!(received, ["bye\n", "hello\n"]);
    assert_eq!(used(&traffic)[0], ("a.test".into(), 9000, 1, 6, 6));
    assert_eq!(used(&traffic)[1].3, 4);
    assert_eq!((traffic.refused, egress.upload().sent()), (vec![], 10));
}

#[tokio::test]
async fn everything_else_is_refused_and_counted() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::echo();
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let egress = egress(&["a.test:9000", "b.test", "b.test:9001"], &[(":", &server)]);
    let script = format!(
        "try() {{ (exec 3<>/dev/tcp/$1/$2 && echo hi >&3 && read -r x <&3 && echo \"$1:$2 answers\") 2>/dev/null; }}
        try evil.test 9000; try a.test.evil.test 9000; try b.test 9000; try 127.0.0.1 9000; try 127.13.7.7 9000
        try a.test 9002; try 1.1.1.1 9000; try 127.0.0.1 {}; try 127.0.0.1 {own}; try a.test 9000; echo end",
        server.port
    );
    let (output, _, traffic) = lab.run(&egress, &script).await;
    assert_eq!(output, "a.test:9000 answers\nend");
    assert_eq!(
        traffic.refused,
        [
            refusal("evil.test", None, RefusedReason::NotListed),
            refusal("a.test.evil.test", None, RefusedReason::NotListed),
            refusal("b.test", 9000, RefusedReason::PortNotListed),
            refusal("127.0.0.1", 9000, RefusedReason::Address),
            refusal("127.13.7.7", 9000, RefusedReason::Address),
        ]
    );
    assert_eq!(traffic.used.len(), 1);
}

//! Commands that may reach hosts by name, in the tiers `bubblewrap` and `landlock`. The hosts are servers of the tests.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::egress::client_hello::tests::hello;
use crate::egress::{
    CallTraffic, Egress, EgressRules, HostRule, NetworkAccess, Refused, RefusedReason, UploadMeter, Used,
};
use crate::process::RunDeadline;
use crate::redaction::Redactor;
use crate::sandbox::allowed_changes::AllowedChanges;
use crate::sandbox::{GuardedFiles, ObjectStages, SandboxMode, SandboxPolicy, Tier};

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
        Self::of(Tier::Bubblewrap)
    }

    /// `None` without this tier.
    fn of(tier: Tier) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        // Without a path, no bubblewrap is found.
        let path = if tier == Tier::Bubblewrap { "/usr/local/bin:/usr/bin:/bin" } else { "" };
        let path = std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect();
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
        let mode = if tier == Tier::Bubblewrap { SandboxMode::Required } else { SandboxMode::Auto };
        match Sandbox::detect(mode, policy) {
            Ok(sandbox) => {
                assert_eq!(sandbox.tier(), tier);
                Some(Self { folder, sandbox })
            }
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    /// Runs a command: its output and exit code, and what it has reached.
    async fn run(&self, egress: &Egress, command: &str) -> (String, Option<i32>, CallTraffic) {
        let call = egress.call();
        let (output, code) = self.run_with(command, Some(&call)).await;
        (output, code, call.take_traffic())
    }

    async fn run_with(&self, command: &str, egress: Option<&CallEgress>) -> (String, Option<i32>) {
        let shell_command = ShellCommand {
            command,
            shell_options: &[],
            workspace: &Workspace::open(self.folder.path(), Vec::new(), Vec::new()).unwrap(),
            environment: &Environment::new(&BTreeMap::new(), &[], &[]),
            sandbox: &self.sandbox,
            read_only: false,
            egress,
            timeout: PATIENCE,
            max_processes: 1_000,
            limits: &CallLimits { deadline: RunDeadline::after(PATIENCE), cancel: CancellationToken::new() },
        };
        let mut output = CommandOutput::new(&Redactor::default(), 10_000);
        let outcome = shell_command.run(&mut output).await.unwrap();
        (output.finish().trim_end().to_owned(), outcome.exit_code())
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

/// Bytes as the format of printf in a shell.
fn as_format(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

#[tokio::test]
async fn on_443_only_tls_for_the_name_passes() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::echo();
    let egress = egress(&["a.test", "b.test"], &[(":", &server)]);
    let good = hello(&["A.test"], 20);
    for (bytes, reason) in [
        (hello(&["b.test"], 500), RefusedReason::WrongServerName),
        (hello(&[], 500), RefusedReason::NoServerName),
        (b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec(), RefusedReason::NotTls),
        (b"SSH-2.0-x\r\n".to_vec(), RefusedReason::NotTls),
        (good[..40].to_vec(), RefusedReason::NotTls),
    ] {
        let script = format!("exec 3<>/dev/tcp/a.test/443; printf '{}' >&3", as_format(&bytes));
        let (_, _, traffic) = lab.run(&egress, &script).await;
        assert_eq!((traffic.refused, traffic.used), (vec![refusal("a.test", 443, reason)], vec![]));
    }
    assert!(server.received_nothing());
    // In pieces of one byte, and what follows passes as it is.
    let script = format!(
        "exec 3<>/dev/tcp/a.test/443; s='{}'; for ((i = 0; i < ${{#s}}; i += 4)); do printf \"${{s:i:4}}\" >&3; done; \
         echo more >&3",
        as_format(&good)
    );
    let (output, _, traffic) = lab.run(&egress, &script).await;
    assert_eq!((output.as_str(), used(&traffic)[0].3), ("", good.len() as u64 + 5));
    let received = server.received.recv_timeout(PATIENCE).unwrap();
    assert_eq!(received, [&good[..], b"more\n"].concat());
}

#[tokio::test]
async fn on_80_every_request_of_a_connection_must_be_for_the_name() {
    let Some(lab) = Lab::new() else { return };
    let answer = |asked: &[u8]| match asked.ends_with(b"\r\n\r\n") {
        true => b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".to_vec(),
        false => Vec::new(),
    };
    let server = Server::start(answer);
    let egress = egress(&["a.test:80", "b.test:80"], &[(":", &server)]);
    let script = r#"exec 3<>/dev/tcp/a.test/80
        ask() { printf "$1" >&3; }
        ask 'POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n'
        while read -r -t 5 line <&3; do echo $line; [ $line == ok ] && break; done 2> /dev/null
        ask 'GET /3 HTTP/1.1\r\nHost: b.test\r\n\r\n'; cat <&3; echo end"#;
    let (output, _, traffic) = lab.run(&egress, script).await;
    assert!(output.contains("200 OK") && output.ends_with("end"), "{output}");
    assert_eq!(traffic.refused, [refusal("a.test", 80, RefusedReason::WrongHost)]);
    let received = server.received();
    assert!(received.contains("abcGET /2") && !received.contains("/3"), "{received}");
    // A first request gets an answer that says why.
    let script = r"exec 3<>/dev/tcp/a.test/80; printf 'GET / HTTP/1.1\r\nHost: b.test\r\n\r\n' >&3; cat <&3";
    let (output, ..) = lab.run(&egress, script).await;
    assert!(output.starts_with("HTTP/1.1 403 Forbidden") && output.contains("for another host"), "{output}");
    assert!(server.received_nothing());
}

#[tokio::test]
async fn an_upgrade_is_relayed_only_if_the_host_agrees() {
    let Some(lab) = Lab::new() else { return };
    let answer = |asked: &[u8]| match asked.starts_with(b"GET /agree") {
        true => b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n".to_vec(),
        false if asked.starts_with(b"GET") => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => asked.to_vec(),
    };
    let server = Server::start(answer);
    let egress = egress(&["a.test:80"], &[(":", &server)]);
    let ask = |path: &str| {
        format!(
            "exec 3<>/dev/tcp/a.test/80; printf 'GET {path} HTTP/1.1\\r\\nHost: a.test\\r\\nUpgrade: websocket\\r\\n\\r\\n' >&3
            while read -r line <&3; do echo \"$line\"; [ \"$line\" == $'\\r' ] && break; done
            echo '\u{1} frame' >&3; read -r -t 5 line <&3; echo \"$line\""
        )
    };
    let (output, _, traffic) = lab.run(&egress, &ask("/agree")).await;
    assert!(output.contains("101") && output.contains("frame") && traffic.refused.is_empty(), "{output}");
    let (output, _, traffic) = lab.run(&egress, &ask("/disagree")).await;
    assert!(output.contains("200 OK") && !output.contains("frame"), "{output}");
    assert_eq!(traffic.refused, [refusal("a.test", 80, RefusedReason::NotHttp)]);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_others() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::echo();
    let egress = egress(&["a.test:9000"], &[(":", &server)]);
    let script =
        "ulimit -n 1000; declare -a all; for ((i = 0; i < 300; i++)); do exec {fd}<>/dev/tcp/a.test/9000 || exit 1
        all+=($fd); echo $i >&$fd; done
        n=0; for fd in ${all[@]:0:256}; do read -r -t 10 x <&$fd && ((n++)); done; echo $n
        read -r -t 0.2 x <&${all[256]} || echo waits
        for fd in ${all[@]:0:256}; do exec {fd}>&-; done
        n=0; for fd in ${all[@]:256}; do read -r -t 10 x <&$fd && ((n++)); done; echo $n";
    let (output, _, traffic) = lab.run(&egress, script).await;
    assert_eq!(output, "256\nwaits\n44");
    assert_eq!((used(&traffic)[0].2, traffic.refused), (300, vec![]));
}

#[tokio::test]
async fn what_a_run_sends_is_limited() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::start(|_| Vec::new());
    let meter = UploadMeter::new(Some(100_000), 0);
    let egress = limited(&["a.test:9000"], &[(":", &server)], meter.clone());
    let script = "head -c 60000 /dev/zero > /dev/tcp/a.test/9000; head -c 200000 /dev/zero > /dev/tcp/a.test/9000; \
                  echo x > /dev/tcp/a.test/9000";
    let (_, _, traffic) = lab.run(&egress, script).await;
    assert!(meter.reached().is_cancelled() && meter.sent() <= 100_000);
    assert_eq!(traffic.refused[0].reason, RefusedReason::UploadLimit);
    // Reaching the limit cuts all connections, also the first one.
    let received = server.received().len() + server.received().len();
    assert!((1..=100_000).contains(&received), "{received}");
    assert!(server.received_nothing());
}

#[tokio::test]
async fn many_refusals_are_few_lines_that_count_them_all() {
    let Some(lab) = Lab::new() else { return };
    let egress = egress(&["a.test:9000"], &[]);
    let script = "for ((i = 0; i < 1000; i++)); do : <>/dev/tcp/h$i.test/9000; done 2> /dev/null; echo end";
    let begin = Instant::now();
    let (output, _, traffic) = lab.run(&egress, script).await;
    println!("1,000 lookups: {:?}", begin.elapsed());
    assert_eq!((output.as_str(), traffic.refused.len()), ("end", crate::egress::MAX_REFUSALS));
    assert_eq!(traffic.refused.iter().map(|refused| refused.count).sum::<u64>(), 1000);
}

#[tokio::test]
async fn the_connections_of_an_abandoned_command_are_cut() {
    let Some(lab) = Lab::new() else { return };
    let server = Server::echo();
    let egress = egress(&["a.test:9000"], &[(":", &server)]);
    let script = "exec 3<>/dev/tcp/a.test/9000; echo hello >&3; read -r x <&3; echo $x > done; sleep 30";
    {
        let run = lab.run(&egress, script);
        tokio::pin!(run);
        let begin = Instant::now();
        while !lab.folder.path().join("done").exists() {
            assert!(begin.elapsed() < PATIENCE);
            let _ = tokio::time::timeout(Duration::from_millis(10), &mut run).await;
        }
    }
    assert_eq!(server.received(), "hello\n");
}

#[tokio::test]
async fn the_resolver_and_the_variables_say_nothing_about_the_machine() {
    let Some(lab) = Lab::new() else { return };
    let egress = egress(&["a.test:9000"], &[]);
    let script = "grep -v '^#' /etc/resolv.conf; grep -c . /etc/hosts; grep -c 127.13.255.254 /proc/net/fib_trie; \
                  (: > /etc/hosts) 2> /dev/null || echo read-only; \
                  exec 3<>/dev/tcp/localhost/9000 || echo none";
    let (output, _, traffic) = lab.run(&egress, script).await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], ["nameserver 127.0.0.1", "options timeout:2 attempts:2"]);
    assert!(lines.contains(&"read-only"), "{output}");
    assert_eq!(traffic.refused, [refusal("127.0.0.1", 9000, RefusedReason::Address)]);
    // Without a list, nothing is reached, and nothing is missing that a command waits for.
    let nothing = Egress::new(EgressRules::default(), UploadMeter::default());
    let (output, ..) = lab.run(&nothing, "(: <>/dev/tcp/a.test/9000) 2> /dev/null || echo refused").await;
    assert_eq!(output, "refused");
}

/// Connects to the proxy of the tier `landlock` as descriptor 3.
const TO_PROXY: &str = "p=${https_proxy#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:}";

#[tokio::test]
async fn without_a_namespace_a_proxy_leads_to_the_hosts_of_the_list() {
    let Some(lab) = Lab::of(Tier::Landlock) else { return };
    let server = Server::echo();
    let egress = egress(&["a.test:9000", "a.test"], &[(":", &server)]);
    let script = format!(
        "{TO_PROXY}; printf 'CONNECT a.test:9000 HTTP/1.1\\r\\n\\r\\n' >&3; read -r x <&3; read -r x <&3; \
         echo hello >&3; read -r x <&3; echo $x
         {TO_PROXY}; printf 'CONNECT b.test:9000 HTTP/1.1\\r\\n\\r\\n' >&3; read -r x <&3; echo $x
         {TO_PROXY}; printf 'CONNECT a.test:443 HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3 > x; wc -l < x"
    );
    let (output, code, traffic) = lab.run(&egress, &script).await;
    assert_eq!((output.as_str(), code), ("hello\nHTTP/1.1 403 Forbidden\n2", Some(0)));
    assert_eq!(used(&traffic), [("a.test".into(), 9000, 1, 6, 6)]);
    let refused = [refusal("b.test", 9000, RefusedReason::NotListed), refusal("a.test", 443, RefusedReason::NotTls)];
    assert_eq!(traffic.refused, refused);
    assert_eq!(server.received(), "hello\n");
}

#[tokio::test]
async fn without_a_namespace_nothing_but_the_proxy_is_reached() {
    let Some(lab) = Lab::of(Tier::Landlock) else { return };
    let server = Server::echo();
    let egress = egress(&["a.test:9000"], &[(":", &server)]);
    let port = server.port;
    let script = format!(
        "try() {{ (exec 3<>/dev/$1/$2/$3 && echo hi >&3 && echo \"$1 $2 $3 works\") 2>/dev/null; }}
        try tcp 127.0.0.1 {port}; try tcp ::1 {port}; try tcp 1.1.1.1 443; try tcp a.test 9000; try udp 127.0.0.1 {port}; echo end"
    );
    let (output, _, traffic) = lab.run(&egress, &script).await;
    assert_eq!(output, "end");
    let refused = [refusal("127.0.0.1", port, RefusedReason::Address), refusal("1.1.1.1", 443, RefusedReason::Address)];
    assert_eq!(traffic.refused, refused);
    // What connects without connect(2), sockets of other kinds, servers, datagrams to sockets of other programs.
    let path = lab.folder.path().canonicalize().unwrap().join("socket");
    let datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let attempts = [
        format!("socket(S, 2, 1, 0) and send(S, 'x', 0x20000000, pack_sockaddr_in({port}, inet_aton('127.0.0.1')))"),
        "socket(S, 2, 2, 0)".to_owned(),
        "socket(S, 10, 1, 0)".to_owned(),
        "socket(S, 1, 1, 0)".to_owned(),
        "socket(S, 16, 3, 0)".to_owned(),
        "socket(S, 2, 1, 262)".to_owned(),
        "socket(S, 2, 1, 0) and bind(S, pack_sockaddr_in(0, inet_aton('127.0.0.1')))".to_owned(),
        format!("socketpair(S, T, 1, 2, 0) and send(S, 'x', 0, pack_sockaddr_un('{}'))", path.display()),
        format!("socketpair(S, T, 1, 3, 0) and connect(S, pack_sockaddr_un('{}'))", path.display()),
    ];
    for attempt in attempts {
        let (output, ..) = lab.run(&egress, &format!("perl -MSocket -e \"print(({attempt}) ? 'works' : 'no')\"")).await;
        if output.contains("not found") {
            eprintln!("skipped: there is no perl");
            break;
        }
        assert!(output.ends_with("no"), "{attempt}: {output}");
    }
    datagrams.set_nonblocking(true).unwrap();
    assert!(datagrams.recv(&mut [0]).is_err() && server.received_nothing());
}

#[tokio::test]
async fn without_a_list_the_proxy_leads_nowhere() {
    let Some(lab) = Lab::of(Tier::Landlock) else { return };
    let nothing = Egress::new(EgressRules::default(), UploadMeter::default());
    let script = format!("{TO_PROXY}; printf 'CONNECT a.test:443 HTTP/1.1\\r\\n\\r\\n' >&3; read -r x <&3; echo $x");
    let (output, _, traffic) = lab.run(&nothing, &script).await;
    assert_eq!((output.trim_end(), traffic.refused.len()), ("HTTP/1.1 403 Forbidden", 1));
}

#[tokio::test]
#[ignore = "prints the overhead of a call"]
async fn measure_overhead() {
    for tier in [Tier::Bubblewrap, Tier::Landlock] {
        let Some(lab) = Lab::of(tier) else { continue };
        let egress = egress(&["a.test", "b.test:22"], &[]);
        let mut times = [Vec::new(), Vec::new()];
        for at in 0..400 {
            let call = egress.call();
            let begin = Instant::now();
            lab.run_with("true", (at % 2 == 1).then_some(&call)).await;
            times[at % 2].push(begin.elapsed());
        }
        times.iter_mut().for_each(|times| times.sort());
        eprintln!("{tier}: without hosts {:?}, with hosts {:?}", times[0][100], times[1][100]);
    }
}

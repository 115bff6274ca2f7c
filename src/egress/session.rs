//! Serves the connections of one command while it runs.

use std::io;
use std::net::{IpAddr, TcpListener as StdListener, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::account::Account;
use super::client_hello::read_hello;
use super::connector::connect;
use super::dns::{self, StandIns};
use super::egress::CallEgress;
use super::http_host;
use super::names::HostName;
use super::refused_reason::RefusedReason;
use super::relay::relay;

/// How long a connection waits for the end of another one if there are too many.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How long what a command has sent is passed on after its end.
const MAX_REST: Duration = Duration::from_secs(2);
/// The pause after the system has refused a descriptor.
const PAUSE: Duration = Duration::from_millis(20);
/// The ports on which only TLS is spoken, and the one of plain HTTP.
const TLS_PORTS: [u16; 2] = [443, 8443];
const HTTP_PORT: u16 = 80;

/// Sockets in the namespace of a command.
#[derive(Debug)]
pub struct CommandSockets {
    /// Where it looks up names.
    pub dns: StdSocket,
    /// Where its connections arrive, for each port of its list.
    pub listeners: Vec<(u16, StdListener)>,
    /// What starts the command, when it is served; called once.
    pub release: Release,
}

/// Starts a command that waits.
pub struct Release(pub Box<dyn FnOnce() -> io::Result<()> + Send>);

impl std::fmt::Debug for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Release")
    }
}

/// The connections of a command. They are cut when this is dropped.
#[derive(Debug)]
pub struct Serving {
    /// The command has ended: what it has sent is still passed on.
    ended: CancellationToken,
    task: JoinHandle<io::Result<()>>,
    _cut: DropGuard,
}

impl Serving {
    /// Like [`finish`](Self::finish), for a thread of its own.
    ///
    /// # Errors
    /// As there.
    pub fn finish_now(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(self.finish())
    }

    /// Call it when the command has ended. What it has sent is passed on for a short time, and everything is counted then.
    ///
    /// # Errors
    /// The command could not be served, and wasn't started.
    pub async fn finish(self) -> io::Result<()> {
        self.ended.cancel();
        match self.task.await {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("the thread for connections has ended")),
        }
    }
}

impl CallEgress {
    /// Serves a command as soon as its sockets have been made, on a thread of its own. They are made there, too.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn serve(
        &self,
        sockets: impl Future<Output = io::Result<CommandSockets>> + Send + 'static,
    ) -> io::Result<Serving> {
        let handle = self.egress().shared.thread.handle()?;
        let (cut, ended) = (CancellationToken::new(), CancellationToken::new());
        let session = Session {
            call: self.clone(),
            stand_ins: Arc::default(),
            cut: cut.clone(),
            ended: ended.clone(),
            connections: TaskTracker::new(),
        };
        let task = handle.spawn(async move {
            let cut = session.cut.clone();
            cut.run_until_cancelled(session.run(sockets)).await.unwrap_or(Ok(()))
        });
        Ok(Serving { ended, task, _cut: cut.drop_guard() })
    }
}

/// One command.
#[derive(Debug, Clone)]
struct Session {
    call: CallEgress,
    stand_ins: Arc<StandIns>,
    cut: CancellationToken,
    ended: CancellationToken,
    connections: TaskTracker,
}

impl Session {
    async fn run(self, sockets: impl Future<Output = io::Result<CommandSockets>>) -> io::Result<()> {
        // A command that can't be started has no sockets.
        let Some(sockets) = self.ended.run_until_cancelled(sockets).await else { return Ok(()) };
        let CommandSockets { dns, listeners, release } = sockets?;
        dns.set_nonblocking(true)?;
        let dns = dns::serve(UdpSocket::from_std(dns)?, self.call.clone(), Arc::clone(&self.stand_ins));
        let cut = self.cut.clone();
        let dns = tokio::spawn(async move { cut.run_until_cancelled(dns).await });
        let mut accepting = Vec::new();
        for (port, listener) in listeners {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            let (session, cut) = (self.clone(), self.cut.clone());
            let accept = async move { cut.run_until_cancelled(session.accept(listener, port)).await };
            accepting.push(tokio::spawn(accept));
        }
        (release.0)()?;
        self.ended.cancelled().await;
        dns.abort();
        for accept in accepting {
            let _ = accept.await;
        }
        self.connections.close();
        let _ = tokio::time::timeout(MAX_REST, self.connections.wait()).await;
        Ok(())
    }

    /// Accepts connections until the command has ended, and those that it has made before.
    async fn accept(self, listener: TcpListener, port: u16) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted.map(|(stream, _)| stream),
                () = self.ended.cancelled() => break,
            };
            match accepted {
                Ok(stream) => self.start(stream, port),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        while let Ok(stream) = rustix::net::accept(listener.as_fd()) {
            let stream = std::net::TcpStream::from(stream);
            match stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
                Ok(stream) => self.start(stream, port),
                Err(_) => return,
            }
        }
    }

    fn start(&self, stream: TcpStream, port: u16) {
        let session = self.clone();
        self.connections.spawn(async move {
            let cut = session.cut.clone();
            cut.run_until_cancelled(session.connection(stream, port)).await;
        });
    }

    /// One connection from its begin to its end.
    async fn connection(&self, stream: TcpStream, port: u16) {
        let Ok(local) = stream.local_addr() else { return };
        let host = match local.ip() {
            IpAddr::V4(address) => self.stand_ins.name(address),
            IpAddr::V6(_) => None,
        };
        match host {
            Some(host) => serve_named(&self.call, (&host, port), stream, Vec::new(), &self.ended).await,
            None => self.call.refuse(&local.ip().to_string(), Some(port), RefusedReason::Address),
        }
    }
}

/// Serves a connection to a name: checks it, and passes it on. What is refused is counted.
pub(super) async fn serve_named(
    call: &CallEgress,
    (host, port): (&HostName, u16),
    mut stream: TcpStream,
    read_ahead: Vec<u8>,
    ended: &CancellationToken,
) {
    // Only a matter of speed.
    let _ = stream.set_nodelay(true);
    if let Err(reason) = pass(call, (host, port), &mut stream, read_ahead, ended).await {
        call.refuse(host.as_str(), Some(port), reason);
    }
}

async fn pass(
    call: &CallEgress,
    (host, port): (&HostName, u16),
    client: &mut TcpStream,
    read_ahead: Vec<u8>,
    ended: &CancellationToken,
) -> Result<(), RefusedReason> {
    call.list().allows(host, port)?;
    if call.egress().upload().reached().is_cancelled() {
        return Err(RefusedReason::UploadLimit);
    }
    let shared = &call.egress().shared;
    let _slot = match shared.slots.try_acquire() {
        Ok(slot) => slot,
        Err(_) => {
            let _waiting = shared.waiting.try_acquire().map_err(|_| RefusedReason::Unreachable)?;
            let slot = tokio::time::timeout(MAX_WAIT, shared.slots.acquire()).await;
            slot.ok().and_then(Result::ok).ok_or(RefusedReason::Unreachable)?
        }
    };
    if port == HTTP_PORT {
        return http_host::serve(call, (host, port), client, read_ahead, ended).await;
    }
    let first = match TLS_PORTS.contains(&port) {
        true => read_hello(client, read_ahead, host).await?,
        false => read_ahead,
    };
    let mut server = connect(call.egress(), host, port).await?;
    let account = Account::open(call, host, port);
    if !first.is_empty() {
        account.send(first.len())?;
        if tokio::io::AsyncWriteExt::write_all(&mut server, &first).await.is_err() {
            return Ok(());
        }
    }
    relay(client, &mut server, &account, ended).await
}

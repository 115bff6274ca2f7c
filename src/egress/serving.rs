//! Serves the connections of one command while it runs.

use std::io;
use std::net::{IpAddr, TcpListener as StdListener, UdpSocket as StdSocket};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::SemaphorePermit;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::account::Account;
use super::client_hello::read_hello;
use super::connector::connect;
use super::dns::{self, StandIns};
use super::egress::{CallEgress, MAX_CONNECTIONS};
use super::http_host;
use super::names::HostName;
use super::refused_reason::RefusedReason;
use super::relay::relay;

/// How long a connection waits for the end of another one if there are too many.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How many connections of a command are open at once, with those that wait or are just being refused.
const MAX_OPEN: usize = 3 * MAX_CONNECTIONS;
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
    pub dns: Option<StdSocket>,
    /// Where its connections arrive, for each port of its list.
    pub listeners: Vec<(u16, StdListener)>,
    /// What starts the command, when it is served; called once.
    pub release: Release,
}

/// Starts a command that waits.
pub struct Release(pub Box<dyn FnOnce() -> io::Result<()> + Send>);

impl Release {
    /// Nothing waits.
    fn nothing() -> Self {
        Self(Box::new(|| Ok(())))
    }
}

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

/// What is done with a connection that has arrived on a port.
type Handler = Arc<dyn Fn(Arrival) -> BoxFuture<'static, ()> + Send + Sync>;

/// A connection that a command has made.
pub(super) struct Arrival {
    pub(super) call: CallEgress,
    pub(super) stream: TcpStream,
    /// The port that it was made to.
    pub(super) port: u16,
    /// The command has ended.
    pub(super) ended: CancellationToken,
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
        let stand_ins = Arc::new(StandIns::default());
        let names = Arc::clone(&stand_ins);
        let handler: Handler = Arc::new(move |arrival| Box::pin(serve_stand_in(arrival, Arc::clone(&names))));
        self.start(async move { Ok((sockets.await?, Some(stand_ins))) }, handler)
    }

    /// Serves a listener whose connections `handler` understands.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn serve_listener(&self, listener: StdListener, handler: Handler) -> io::Result<Serving> {
        let port = listener.local_addr()?.port();
        let sockets = CommandSockets { dns: None, listeners: vec![(port, listener)], release: Release::nothing() };
        self.start(async { Ok((sockets, None)) }, handler)
    }

    fn start(
        &self,
        sockets: impl Future<Output = io::Result<(CommandSockets, Option<Arc<StandIns>>)>> + Send + 'static,
        handler: Handler,
    ) -> io::Result<Serving> {
        let handle = self.egress().shared.thread.handle()?;
        let (cut, ended) = (CancellationToken::new(), CancellationToken::new());
        let served = ServedCommand {
            call: self.clone(),
            cut: cut.clone(),
            ended: ended.clone(),
            connections: TaskTracker::new(),
            handler,
        };
        let task = handle.spawn(async move {
            let cut = served.cut.clone();
            cut.run_until_cancelled(served.run(sockets)).await.unwrap_or(Ok(()))
        });
        Ok(Serving { ended, task, _cut: cut.drop_guard() })
    }
}

/// One command.
#[derive(Clone)]
struct ServedCommand {
    call: CallEgress,
    cut: CancellationToken,
    ended: CancellationToken,
    connections: TaskTracker,
    handler: Handler,
}

impl ServedCommand {
    async fn run(
        self,
        sockets: impl Future<Output = io::Result<(CommandSockets, Option<Arc<StandIns>>)>>,
    ) -> io::Result<()> {
        // A command that can't be started has no sockets.
        let Some(sockets) = self.ended.run_until_cancelled(sockets).await else { return Ok(()) };
        let (CommandSockets { dns, listeners, release }, stand_ins) = sockets?;
        let mut serving = Vec::new();
        if let (Some(dns), Some(stand_ins)) = (dns, stand_ins) {
            dns.set_nonblocking(true)?;
            let dns = dns::serve(UdpSocket::from_std(dns)?, self.call.clone(), stand_ins);
            let (cut, ended) = (self.cut.clone(), self.ended.clone());
            let dns = async move { cut.run_until_cancelled(ended.run_until_cancelled(dns)).await.flatten() };
            serving.push(tokio::spawn(dns));
        }
        for (port, listener) in listeners {
            listener.set_nonblocking(true)?;
            let listener = TcpListener::from_std(listener)?;
            let (served, cut) = (self.clone(), self.cut.clone());
            let accept = async move { cut.run_until_cancelled(served.accept(listener, port)).await };
            serving.push(tokio::spawn(accept));
        }
        (release.0)()?;
        self.ended.cancelled().await;
        for task in serving {
            let _ = task.await;
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
                Ok(stream) => self.handle(stream, port),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, _)) = listener.accept() {
            match stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
                Ok(stream) => self.handle(stream, port),
                Err(_) => return,
            }
        }
    }

    fn handle(&self, stream: TcpStream, port: u16) {
        // Those that haven't said where they lead have no slot yet. Each takes a descriptor.
        if self.connections.len() >= MAX_OPEN {
            return;
        }
        let arrival = Arrival { call: self.call.clone(), stream, port, ended: self.ended.clone() };
        let (handled, cut) = ((self.handler)(arrival), self.cut.clone());
        self.connections.spawn(async move { cut.run_until_cancelled(handled).await });
    }
}

/// Serves a connection to an address that stands for a name.
async fn serve_stand_in(arrival: Arrival, stand_ins: Arc<StandIns>) {
    let Arrival { call, stream, port, ended } = arrival;
    let Ok(local) = stream.local_addr() else { return };
    let host = match local.ip() {
        IpAddr::V4(address) => stand_ins.name(address),
        IpAddr::V6(_) => None,
    };
    match host {
        Some(host) => serve_named(&call, (&host, port), stream, Vec::new(), &ended).await,
        None => call.refuse(&local.ip().to_string(), Some(port), RefusedReason::Address),
    }
}

/// Waits until there may be another connection.
///
/// # Errors
/// There are too many, or the run has sent as much as it may.
pub(super) async fn acquire_slot(call: &CallEgress) -> Result<SemaphorePermit<'_>, RefusedReason> {
    let shared = &call.egress().shared;
    if shared.upload.reached().is_cancelled() {
        return Err(RefusedReason::UploadLimit);
    }
    if let Ok(slot) = shared.slots.try_acquire() {
        return Ok(slot);
    }
    let _waiting = shared.waiting.try_acquire().map_err(|_| RefusedReason::Unreachable)?;
    let slot = tokio::time::timeout(MAX_WAIT, shared.slots.acquire()).await;
    slot.ok().and_then(Result::ok).ok_or(RefusedReason::Unreachable)
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
    let _slot = acquire_slot(call).await?;
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

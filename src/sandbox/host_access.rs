//! Lets a command reach the hosts of its list. In a network namespace of its own, bubblewrap waits before it starts the command,
//! until there are sockets in the namespace and somebody serves them. Without one, there is a proxy.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use super::namespace_sockets::{self, NamespaceSockets};
use crate::egress::{CallEgress, CommandSockets, ProxyListener, Release, Serving};

/// How long bubblewrap's first report can be.
const MAX_REPORT: usize = 4 << 10;

/// A command that isn't served yet.
#[derive(Debug)]
pub enum HostAccess {
    /// In its own namespace.
    Namespace(WaitingCommand),
    /// Through a proxy.
    Proxy(ProxyListener),
}

/// A command whose bubblewrap waits.
#[derive(Debug)]
pub struct WaitingCommand {
    call: CallEgress,
    /// Where bubblewrap reports the process that waits.
    report: PipeReader,
    /// What that process waits for. If it is closed, the command starts, and has no network.
    start: PipeWriter,
}

impl HostAccess {
    /// Serves the command, whose process has just been started. This doesn't wait for it.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn serve(self) -> io::Result<Serving> {
        match self {
            Self::Namespace(waiting) => waiting.serve(),
            Self::Proxy(proxy) => proxy.serve(),
        }
    }
}

impl WaitingCommand {
    pub(super) fn new(call: &CallEgress, report: PipeReader, start: PipeWriter) -> Self {
        Self { call: call.clone(), report, start }
    }

    fn serve(self) -> io::Result<Serving> {
        let Self { call, report, mut start } = self;
        let ports: Vec<u16> = call.list().ports().into_iter().collect();
        call.serve(async move {
            let process = waiting_process(report).await?;
            let NamespaceSockets { lookups, listeners, helper } = match namespace_sockets::open_in(process, &ports) {
                Ok(sockets) => sockets,
                Err(error) => {
                    // It waits, so it is still the same process. It must not start without the network that it was promised.
                    let _ = kill_process(process, Signal::KILL);
                    drop(start);
                    return Err(io::Error::other(format!("its network can't be set up ({error})")));
                }
            };
            let release = Release(Box::new(move || {
                start.write_all(b"x")?;
                drop(helper);
                Ok(())
            }));
            Ok(CommandSockets { dns: Some(lookups), listeners, release })
        })
    }
}

/// The first line of bubblewrap's report.
#[derive(Deserialize)]
struct Report {
    #[serde(rename = "child-pid")]
    process: i32,
}

async fn waiting_process(report: PipeReader) -> io::Result<Pid> {
    let mut pipe = Receiver::from_owned_fd(OwnedFd::from(report))?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') {
        let mut buffer = [0; 256];
        match pipe.read(&mut buffer).await? {
            count @ 1.. if line.len() < MAX_REPORT => line.extend_from_slice(&buffer[..count]),
            _ => return Err(io::Error::other("bubblewrap has not reported the command's process")),
        }
    }
    let first = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let report: Report = serde_json::from_slice(first)?;
    Pid::from_raw(report.process).ok_or_else(|| io::Error::other("the command's process has no id"))
}

//! Passes bytes between a command and a host.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::refused_reason::RefusedReason;

/// What each direction holds at most, besides what the system does.
const BUFFER: usize = 16 << 10;

/// Passes on everything in both directions until both have ended. Each direction ends on its own. After `ended`, when the command is
/// over, only what it has sent is passed on.
///
/// # Errors
/// The run has sent as much as it may.
pub(super) async fn relay(
    client: &mut TcpStream,
    server: &mut TcpStream,
    account: &Account,
    ended: &CancellationToken,
) -> Result<(), RefusedReason> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = pass_up(&mut from_client, &mut to_server, account);
    let down = pass_down(&mut from_server, &mut to_client, account);
    both(up, down, account, ended).await
}

/// Waits for both directions.
pub(super) async fn both(
    up: impl Future<Output = Result<(), RefusedReason>>,
    down: impl Future<Output = ()>,
    account: &Account,
    ended: &CancellationToken,
) -> Result<(), RefusedReason> {
    tokio::pin!(up, down);
    let (mut is_up_done, mut is_down_done) = (false, false);
    let must_end = account.must_end();
    tokio::pin!(must_end);
    while !(is_up_done && (is_down_done || ended.is_cancelled())) {
        tokio::select! {
            result = &mut up, if !is_up_done => {
                result?;
                is_up_done = true;
            }
            () = &mut down, if !is_down_done => is_down_done = true,
            () = ended.cancelled(), if is_up_done => {}
            result = &mut must_end => return result,
        }
    }
    Ok(())
}

/// Passes on what the command sends, until it has sent everything or the host takes no more.
pub(super) async fn pass_up(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    account: &Account,
) -> Result<(), RefusedReason> {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        account.send(count)?;
        if to.write_all(&buffer[..count]).await.is_err() {
            return Ok(());
        }
    }
    // The other side may be gone.
    let _ = to.shutdown().await;
    Ok(())
}

/// Passes on what the host sends, until it has sent everything or the command takes no more.
pub(super) async fn pass_down(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    account: &Account,
) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        account.receive(count);
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

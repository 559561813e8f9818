//! The task of one peer: connects, sends the queue, reconnects.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use torc_proto::Reason;
use torc_ring::NodeId;
use torc_ring::topology::Boot;
use torc_tls::Connector;

use crate::connect::{ConnectError, Connection, Said, connect};
use crate::queue::Queue;
use crate::{Contact, Inner};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often to check whether the peer has moved.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Time for the coordinators to notice that a peer stops.
const NOTICE_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs until the peer is no longer a member or the links end; then closes the queue.
pub(crate) async fn run(inner: Arc<Inner>, to: NodeId, queue: Arc<Queue>) {
    let sending = keep_sending(&inner, to, &queue);
    inner.cancel.run_until_cancelled(sending).await;
    inner.queues.write().remove(&to);
    queue.unreachable(&inner.metrics);
}

async fn keep_sending(inner: &Arc<Inner>, to: NodeId, queue: &Arc<Queue>) {
    let mut pause = FIRST_PAUSE;
    while let Some(contact) = inner.directory.member(to) {
        let begun = Instant::now();
        let connected = tokio::select! {
            biased;
            connected = connect(inner, to, &contact, queue) => connected,
            () = ends_without(inner, queue) => return,
        };
        match connected {
            Ok(connection) => {
                tracing::debug!(node = %to, address = contact.address, "linked");
                pause = FIRST_PAUSE;
                flow(inner, to, &contact, queue, connection).await;
            }
            Err(error) => {
                if let ConnectError::Refused(why) = &error
                    && why.reason == Reason::Superseded
                {
                    inner.directory.disown(why);
                }
                queue.unreachable(&inner.metrics);
                tracing::debug!(node = %to, %error, "no link");
            }
        }
        // At once if the stream has lived: messages wait.
        tokio::time::sleep_until(begun + pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Resolves when this node stops and no message waits for the peer.
async fn ends_without(inner: &Inner, queue: &Queue) {
    inner.flushing.cancelled().await;
    if !queue.is_empty() {
        std::future::pending::<()>().await;
    }
}

/// Why a stream that works ends.
enum Over {
    Moved,
    /// Another one on a new connection replaces it, before the peer no longer counts the node's certificate.
    Old,
    /// The peer stops.
    Leaving,
    /// This node stops.
    Stopping,
}

/// Sends the queue until the stream ends, the peer moves, the stream is old, or one of the two stops.
async fn flow(
    inner: &Arc<Inner>,
    to: NodeId,
    contact: &Contact,
    queue: &Queue,
    mut connection: Connection,
) {
    let _counted = Connected::count(inner);
    queue.reachable();
    connection.open();
    let (tls, boot) = (connection.tls(), connection.boot());
    let old_at = Instant::now() + inner.options.stream_age;
    let replaced = async {
        loop {
            let now = inner.directory.member(to);
            if !now.is_some_and(|now| reaches(contact, boot, &now)) {
                return Over::Moved;
            }
            let now = inner.options.tls.as_ref().map(Connector::in_use);
            if Instant::now() >= old_at || now != tls {
                return Over::Old;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let over = tokio::select! {
        said = connection.hears() => match said {
            Said::Leaving => Over::Leaving,
            Said::Ended(fault) => {
                let fault = fault.map(|fault| fault.message);
                tracing::info!(node = %to, fault, "the link has ended");
                return;
            }
        },
        over = replaced => over,
        () = inner.flushing.cancelled() => Over::Stopping,
    };
    match over {
        Over::Moved => tracing::info!(node = %to, "the peer has moved"),
        Over::Old => {
            tracing::debug!(node = %to, "the link is replaced by one on a new connection");
            connection.drain().await;
        }
        Over::Leaving => {
            tracing::info!(node = %to, "the peer is stopping");
            let _ = tokio::time::timeout(NOTICE_TIMEOUT, queue.leave()).await;
            connection.flush().await;
        }
        Over::Stopping => connection.flush().await,
    }
}

/// Whether a stream that this start of the peer accepted reaches the peer as it is known now. The
/// directory often learns of a start after the stream, which then is no reason to replace it.
fn reaches(contact: &Contact, boot: Boot, now: &Contact) -> bool {
    let restarted = now.boot.is_some_and(|known| boot.is_superseded_by(known));
    (&now.address, now.incarnation) == (&contact.address, contact.incarnation) && !restarted
}

/// Counts a connected peer until dropped.
struct Connected<'a>(&'a Inner);

impl<'a> Connected<'a> {
    fn count(inner: &'a Inner) -> Self {
        inner.metrics.connected.inc();
        Self(inner)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.metrics.connected.dec();
    }
}

//! The task of one peer: connects, sends the queue, reconnects.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use torc_proto::Reason;
use torc_ring::NodeId;

use crate::connect::{ConnectError, Connection, connect};
use crate::queue::Queue;
use crate::{Contact, Inner};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often to check whether the peer has moved.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
        match connect(inner, to, &contact, queue).await {
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

/// Sends the queue until the stream ends or the peer moves.
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
    let moved = async {
        while inner.directory.member(to).as_ref() == Some(contact) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        fault = connection.ended() => {
            let fault = fault.map(|fault| fault.message);
            tracing::info!(node = %to, fault, "the link has ended");
        }
        () = moved => tracing::info!(node = %to, "the peer has moved"),
    }
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

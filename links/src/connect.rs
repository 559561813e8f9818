//! Opens a stream to a peer.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::watch;
use tonic::Streaming;
use torc_proto::link::{LinkHello, LinkWelcome, push_envelope};
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::v1::{LinkRequest, LinkResponse};
use torc_proto::{Fault, WireError};
use torc_ring::NodeId;
use torc_ring::topology::{Boot, Levels};
use torc_tls::{Connector, InUse};

use crate::queue::{BATCH_BYTES, Queue};
use crate::{Contact, DropReason, Inner, Parcel};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit from the connection to the peer's acceptance.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the peer to take what was sent before a stream is replaced.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A vanished peer is detected after the sum of both.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no stream to a peer. A retry may help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("this node belongs to no cluster yet")]
    NoCluster,
    #[error("cannot connect to {address}: {source}")]
    Transport {
        address: String,
        source: tonic::transport::Error,
    },
    #[error("it did not accept in time")]
    Silent,
    #[error("it refused: {0}")]
    Refused(Fault),
    #[error("unexpected handshake reply: {0}")]
    Answer(#[from] WireError),
    #[error("a different node answered: node {found}")]
    Stranger { found: NodeId },
    #[error("it supports feature {found}, but the cluster is at level {level}")]
    Level { found: Levels, level: u32 },
    #[error("an older start of the node answered: start {found}")]
    Outrun { found: u64 },
}

/// A stream that the peer has accepted. Dropping it ends it.
pub(crate) struct Connection {
    answers: Streaming<LinkResponse>,
    state: watch::Sender<SendState>,
    /// The certificate that it was made with.
    tls: Option<InUse>,
    /// The start of the peer that accepted it.
    boot: Boot,
}

/// Whether the request stream may read the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    Waiting,
    Open,
    /// Only for what waits in the queue now.
    Flushing,
    Closed,
}

/// What a peer says on a stream after it has accepted it.
pub(crate) enum Said {
    /// It stops, and handles what was queued.
    Leaving,
    /// The stream has ended, for this reason.
    Ended(Option<Fault>),
}

impl Connection {
    /// Lets messages through.
    pub(crate) fn open(&self) {
        self.state.send_replace(SendState::Open);
    }

    /// The certificate that it was made with.
    pub(crate) fn tls(&self) -> Option<InUse> {
        self.tls.clone()
    }

    /// The start of the peer that accepted it.
    pub(crate) const fn boot(&self) -> Boot {
        self.boot
    }

    /// Sends no more, and waits until the peer has taken what was sent. What waits in the queue stays
    /// there.
    pub(crate) async fn drain(self) {
        self.end(SendState::Closed).await;
    }

    /// Sends what waits in the queue, and waits until the peer has taken all.
    pub(crate) async fn flush(self) {
        self.end(SendState::Flushing).await;
    }

    async fn end(mut self, state: SendState) {
        self.state.send_replace(state);
        let ended = async { while let Said::Leaving = self.hears().await {} };
        // What a slow peer has not taken is lost.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, ended).await;
    }

    /// Returns what the peer says next.
    pub(crate) async fn hears(&mut self) -> Said {
        loop {
            match self.answers.message().await {
                Ok(Some(LinkResponse { leaving: true, .. })) => return Said::Leaving,
                Ok(Some(_)) => {}
                Ok(None) => return Said::Ended(None),
                Err(status) => return Said::Ended(Some(Fault::from_status(&status))),
            }
        }
    }
}

/// Connects, and waits until the peer accepts.
pub(crate) async fn connect(
    inner: &Arc<Inner>,
    to: NodeId,
    contact: &Contact,
    queue: &Arc<Queue>,
) -> Result<Connection, ConnectError> {
    let me = inner.directory.whoami().ok_or(ConnectError::NoCluster)?;
    let failed = |source| ConnectError::Transport {
        address: contact.address.clone(),
        source,
    };
    let tls = inner.options.tls.as_ref();
    let in_use = tls.map(Connector::in_use);
    let endpoint = torc_tls::endpoint(&contact.address, tls).map_err(failed)?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20);
    let connected = torc_tls::connect(&endpoint, tls).await;
    let channel = connected.map_err(failed)?;
    let hello = LinkHello {
        cluster: me.cluster,
        node: me.node,
        incarnation: me.incarnation,
        target: to,
        boot: me.boot,
        levels: me.levels,
        ceiling: me.ceiling,
    };
    let (state, watched) = watch::channel(SendState::Waiting);
    let batches = batches(Arc::clone(inner), to, Arc::clone(queue), watched);
    let requests = stream::iter([hello.to_wire()]).chain(batches);
    let accepted = async {
        let mut client = ReplicaClient::new(channel);
        let refused = |status| ConnectError::Refused(Fault::from_status(&status));
        let mut answers = client.link(requests).await.map_err(refused)?.into_inner();
        let first = answers.message().await.map_err(refused)?;
        let welcome = LinkWelcome::from_wire(&first.unwrap_or_default())?;
        if (welcome.node, welcome.incarnation) != (to, contact.incarnation) {
            return Err(ConnectError::Stranger {
                found: welcome.node,
            });
        }
        if !welcome.levels.contains(me.level) {
            return Err(ConnectError::Level {
                found: welcome.levels,
                level: me.level,
            });
        }
        if contact
            .boot
            .is_some_and(|known| welcome.boot.is_superseded_by(known))
        {
            return Err(ConnectError::Outrun {
                found: welcome.boot.number,
            });
        }
        Ok(Connection {
            answers,
            state,
            tls: in_use,
            boot: welcome.boot,
        })
    };
    tokio::time::timeout(ACCEPT_TIMEOUT, accepted)
        .await
        .unwrap_or(Err(ConnectError::Silent))
}

/// The batches of the queue, once the state is `Open`, until it is dropped. The connection pulls them
/// as its window allows.
fn batches(
    inner: Arc<Inner>,
    to: NodeId,
    queue: Arc<Queue>,
    state: watch::Receiver<SendState>,
) -> impl Stream<Item = LinkRequest> {
    stream::unfold(state, move |mut state| {
        let (inner, queue) = (Arc::clone(&inner), Arc::clone(&queue));
        async move {
            loop {
                let now = *state
                    .wait_for(|state| *state != SendState::Waiting)
                    .await
                    .ok()?;
                let batch = match now {
                    // An ended stream must not take messages that the next stream should carry.
                    SendState::Closed | SendState::Waiting => return None,
                    SendState::Flushing => queue.take_rest(&inner.metrics).await?,
                    SendState::Open => tokio::select! {
                        biased;
                        changed = state.changed() => {
                            changed.ok()?;
                            continue;
                        }
                        batch = queue.take(&inner.metrics) => batch,
                    },
                };
                if !inner.faults.cut_to(to) {
                    return Some((encode(&inner, batch), state));
                }
                inner.metrics.dropped(DropReason::Cut, batch.len());
            }
        }
    })
}

fn encode(inner: &Inner, batch: Vec<Parcel>) -> LinkRequest {
    const SMALL: usize = 64;
    let mut bytes = BytesMut::with_capacity((batch.len() * SMALL).min(BATCH_BYTES));
    for Parcel { envelope, trace } in batch {
        inner.metrics.sent(&envelope.message);
        push_envelope(&mut bytes, envelope, trace.as_deref());
    }
    inner.metrics.sent_batches.inc();
    inner.metrics.sent_bytes.inc_by(bytes.len() as u64);
    LinkRequest {
        hello: None,
        envelopes: bytes.freeze(),
    }
}

//! Metrics of links: `torc_link_*`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use torc_replication::Message;

/// The kinds of messages, by the numbers that [`kind_of`] gives.
const KINDS: [&str; 22] = [
    "read",
    "holding",
    "prepare",
    "promised",
    "accept",
    "accepted",
    "nack",
    "abstain",
    "learn",
    "pull",
    "page",
    "gc_floor",
    "gc_sum",
    "gc_purge",
    "compare",
    "list",
    "store",
    "epoch",
    "repair",
    "confirm",
    "confirmed",
    "same_page",
];

const fn kind_of(message: &Message) -> usize {
    match message {
        Message::Read { .. } => 0,
        Message::Holding { .. } => 1,
        Message::Prepare { .. } => 2,
        Message::Promised { .. } => 3,
        Message::Accept { .. } => 4,
        Message::Accepted { .. } => 5,
        Message::Nack { .. } => 6,
        Message::Abstain { .. } => 7,
        Message::Learn { .. } => 8,
        Message::Pull { .. } => 9,
        Message::Page { .. } => 10,
        Message::GcFloor { .. } => 11,
        Message::GcSum { .. } => 12,
        Message::GcPurge { .. } => 13,
        Message::Compare { .. } => 14,
        Message::List { .. } => 15,
        Message::Store { .. } => 16,
        Message::Epoch { .. } => 17,
        Message::Repair { .. } => 18,
        Message::Confirm { .. } => 19,
        Message::Confirmed { .. } => 20,
        Message::SamePage { .. } => 21,
    }
}

/// Why a message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Its peer's queue was full.
    Full,
    /// Its peer could not be reached.
    Unreachable,
    /// Its peer is not a member.
    NoAddress,
    /// It was malformed, or about an unknown partition.
    Malformed,
    /// A test cut the link.
    Cut,
}

/// The reasons, by their numbers.
const REASONS: [&str; 5] = ["full", "unreachable", "no_address", "malformed", "cut"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The counters of a node's links. Cloning shares them.
#[derive(Debug, Clone)]
pub struct LinkMetrics {
    sent: [Counter; KINDS.len()],
    received: [Counter; KINDS.len()],
    dropped: [Counter; REASONS.len()],
    pub(crate) sent_batches: Counter,
    pub(crate) received_batches: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) queued: Gauge,
    pub(crate) connected: Gauge,
}

impl LinkMetrics {
    /// Registers the counters, all of them from the start, at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let mut kinds = |name: &str, help: &str| {
            let family = Family::<KindLabels, Counter>::default();
            registry.register(name, help, family.clone());
            KINDS.map(|kind| family.get_or_create(&KindLabels { kind }).clone())
        };
        let sent = kinds(
            "link_sent_envelopes",
            "Messages sent to other nodes, by kind",
        );
        let received = kinds(
            "link_received_envelopes",
            "Messages received from other nodes, by kind",
        );
        let reasons = Family::<ReasonLabels, Counter>::default();
        registry.register(
            "link_dropped",
            "Messages between nodes that were dropped, by reason",
            reasons.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let sent_batches = counter("link_sent_batches", "Batches of messages sent");
        let received_batches = counter("link_received_batches", "Batches of messages received");
        let sent_bytes = counter("link_sent_bytes", "Bytes of messages sent");
        let received_bytes = counter("link_received_bytes", "Bytes of messages received");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        Self {
            sent,
            received,
            dropped: REASONS.map(|reason| reasons.get_or_create(&ReasonLabels { reason }).clone()),
            sent_batches,
            received_batches,
            sent_bytes,
            received_bytes,
            queued: gauge("link_queued_envelopes", "Messages waiting to be sent"),
            connected: gauge("link_connected_peers", "Peers with an open stream"),
        }
    }

    pub(crate) fn sent(&self, message: &Message) {
        self.sent[kind_of(message)].inc();
    }

    pub(crate) fn received(&self, message: &Message) {
        self.received[kind_of(message)].inc();
    }

    pub(crate) fn dropped(&self, reason: DropReason, count: usize) {
        self.dropped[reason as usize].inc_by(count as u64);
    }

    /// Messages dropped for a reason so far.
    #[must_use]
    pub fn dropped_so_far(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].get()
    }

    /// Batches sent so far.
    #[must_use]
    pub fn batches_so_far(&self) -> u64 {
        self.sent_batches.get()
    }

    /// Waiting messages of all peers.
    #[must_use]
    pub fn queued_now(&self) -> i64 {
        self.queued.get()
    }

    /// Peers with an open stream.
    #[must_use]
    pub fn connected_now(&self) -> i64 {
        self.connected.get()
    }
}

//! The registers of one node for tests, without other nodes. Batches become durable for them only
//! while a test handles what the store reports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use torc_links::{Contact, Directory, LinkMetrics, LinkOptions, Links, Whoami};
use torc_proto::Fault;
use torc_record::{
    Ballot, DIGEST_LEN, Digest, DigestKey, Epoch, HybridTime, Key, NamespaceId, NodeSlot, Record,
    State,
};
use torc_replication::Config;
use torc_ring::topology::NamespaceMode;
use torc_ring::{NodeId, Partition, Partitions};
use torc_store::fs::{Fs, RealFs};
use torc_store::{Store, StoreOptions};

use super::turn::Outbox;
use super::{Durable, Keys, Me, RegisterMetrics, Registers, WantedSlices, shard_count, upkeep};
use torc_limits::budget::Budget;

pub(super) const ME: NodeId = NodeId(1);
/// The only partition, unless a test says otherwise.
pub(super) const HERE: Partition = Partition(0);

/// No other node can be reached.
struct Nobody;

impl Directory for Nobody {
    fn whoami(&self) -> Option<Whoami> {
        None
    }

    fn member(&self, _node: NodeId) -> Option<Contact> {
        None
    }

    fn disown(&self, _why: &Fault) {}
}

pub(super) struct Rig {
    pub(super) registers: Arc<Registers>,
    registry: Registry,
    inbox: mpsc::UnboundedReceiver<Durable>,
    _slices: mpsc::Receiver<WantedSlices>,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// Registers that know the default namespace, over a new store.
    pub(super) fn start(change: impl Fn(&mut StoreOptions)) -> Self {
        Self::on(Arc::new(RealFs), change)
    }

    /// The same on another file system.
    pub(super) fn on(fs: Arc<dyn Fs>, change: impl Fn(&mut StoreOptions)) -> Self {
        Self::divided(shard_count(), fs, change)
    }

    /// The same with this many shards.
    pub(super) fn divided(
        shards: usize,
        fs: Arc<dyn Fs>,
        change: impl Fn(&mut StoreOptions),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = StoreOptions::new(dir.path());
        options.partitions = Partitions::new(1).unwrap();
        change(&mut options);
        let partitions = options.partitions;
        let (store, _) = Store::open_with(options, fs).unwrap();
        let mut registry = Registry::default();
        let links = Links::new(
            Arc::new(Nobody),
            LinkOptions::new(partitions),
            LinkMetrics::register(&mut registry),
            CancellationToken::new(),
        );
        let (reports, _) = mpsc::unbounded_channel();
        let (slices, wanted) = mpsc::channel(1);
        let me = Me {
            node: ME,
            slot: NodeSlot(1),
        };
        let registers = Registers::recover(
            me,
            partitions,
            (store, Budget::new(64 << 20)),
            links,
            Instant::now(),
            (reports, slices),
            (RegisterMetrics::register(&mut registry), None),
        );
        let registers = Arc::new(registers.with_shards(shards));
        registers.keys.store(Arc::new(Keys {
            modes: [(NamespaceId::DEFAULT, NamespaceMode::Linearizable)].into(),
            partitions: Some(partitions),
            ..Keys::default()
        }));
        let inbox = registers.inbox.lock().take().unwrap();
        tokio::spawn(upkeep::beat(Arc::clone(&registers)));
        tokio::spawn(upkeep::read(Arc::clone(&registers)));
        tokio::spawn(upkeep::fetch(Arc::clone(&registers)));
        Self {
            registers,
            registry,
            inbox,
            _slices: wanted,
            _dir: dir,
        }
    }

    /// The registers learn the key of digests.
    pub(super) fn know_digests(&self, key: DigestKey) {
        let before = self.registers.keys.load_full();
        self.registers.keys.store(Arc::new(Keys {
            modes: before.modes.clone(),
            partitions: before.partitions,
            digest_key: Some(key),
            ..Keys::default()
        }));
    }

    /// The registers' metrics.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Runs a future, and handles what the store reports meanwhile.
    pub(super) async fn during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                done = &mut future => return done,
                Some(event) = self.inbox.recv() => {
                    let outbox = self.registers.on_durable(event, Outbox::of_thread());
                    outbox.send(&self.registers.links);
                }
            }
        }
    }

    /// Handles the next thing that the store reports.
    pub(super) async fn handle_one(&mut self) {
        let event = self.inbox.recv().await.unwrap();
        let outbox = self.registers.on_durable(event, Outbox::of_thread());
        outbox.send(&self.registers.links);
    }

    /// Gives the replica its configuration, and waits until it acts in it.
    pub(super) async fn adopt(&mut self, config: &Arc<Config>) {
        self.registers.configure(config);
        let registers = Arc::clone(&self.registers);
        let acts = || {
            registers
                .config(config.partition)
                .is_some_and(|it| it.epoch == config.epoch)
        };
        self.during(until("the replica acts in its configuration", acts))
            .await;
    }
}

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A record of an earlier epoch. Its digest begins with its number.
pub(super) fn record(number: u8, value: Vec<u8>) -> Record {
    let mut digest = [0; DIGEST_LEN];
    digest[0] = number;
    Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest(digest),
        key: Key::new(vec![number]).unwrap(),
        ballot: Ballot {
            epoch: Epoch(1),
            time: HybridTime(1),
            slot: NodeSlot(2),
        },
        origin: None,
        state: State::Value {
            value: value.into(),
            expires_at_ms: None,
        },
    }
}

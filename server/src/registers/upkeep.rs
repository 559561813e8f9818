//! What happens by itself: what became durable is told, deadlines pass, copies go on, keys
//! that differ are settled, copies are compared, tombstones are collected.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use torc_record::{Ballot, HybridTime, NodeSlot};
use torc_replication::{Collector, Input, KeyId};
use torc_ring::Partition;
use torc_ring::topology::Stage;
use torc_store::Advisory;

use super::work::Work;
use super::{Durable, Registers, SHARDS, Settle, hints};
use crate::mutants::broken_rules;

/// Keys that wait for being settled.
pub(super) const SETTLES_WAITING: usize = 4_096;
/// Settled at a time.
const SETTLES: usize = 64;
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// Between looks at deadlines while operations are under way.
const BEAT: Duration = Duration::from_millis(2);
/// Between reminders of those who are asked for copies.
const PULL_AGAIN: Duration = Duration::from_millis(100);
/// Between looks at who can be reached.
const WATCH: Duration = Duration::from_millis(20);
/// Between two partitions' comparisons; a node with 4,096 compares each every 40 s.
const COMPARE: Duration = Duration::from_millis(10);
/// A collection leaves alone what may still be under way.
const COLLECT_OLDER_THAN: Duration = Duration::from_secs(10);
/// A collection is begun with every so many comparisons of a partition.
const COLLECT_EVERY: u64 = 4;

/// Runs everything until the node stops; `worker` is the runtime that streams to peers run on.
pub(crate) fn run(
    registers: &Arc<Registers>,
    advisory: &Advisory,
    tasks: &TaskTracker,
    cancel: &CancellationToken,
    worker: &Handle,
) {
    let spawn = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let cancel = cancel.clone();
        tasks.spawn(async move {
            cancel.run_until_cancelled(task).await;
        });
    };
    if let Some(inbox) = registers.inbox.lock().take() {
        // Where the answers that it releases are sent from.
        let cancel = cancel.clone();
        let telling = tell_durable(Arc::clone(registers), inbox);
        let telling = async move {
            cancel.run_until_cancelled(telling).await;
        };
        tasks.spawn_on(telling, worker);
    }
    if let Some(unsettled) = registers.unsettled.lock().take() {
        spawn(Box::pin(settle(Arc::clone(registers), unsettled)));
    }
    spawn(Box::pin(beat(Arc::clone(registers))));
    spawn(Box::pin(pull_again(Arc::clone(registers))));
    spawn(Box::pin(watch_peers(Arc::clone(registers))));
    spawn(Box::pin(compare(Arc::clone(registers))));
    spawn(Box::pin(hints::write(
        Arc::clone(registers),
        advisory.clone(),
    )));
    spawn(Box::pin(hints::hand_over(Arc::clone(registers))));
}

async fn tell_durable(registers: Arc<Registers>, mut inbox: mpsc::UnboundedReceiver<Durable>) {
    let mut events = Vec::new();
    while inbox.recv_many(&mut events, 256).await > 0 {
        for event in events.drain(..) {
            registers.on_durable(event);
        }
    }
}

async fn beat(registers: Arc<Registers>) {
    loop {
        if !registers.tick() {
            registers.busy.notified().await;
        }
        tokio::time::sleep(BEAT).await;
    }
}

async fn pull_again(registers: Arc<Registers>) {
    loop {
        tokio::time::sleep(PULL_AGAIN).await;
        for (partition, host) in registers.hosts.iter() {
            let is_moving = host.lock().is_moving();
            if is_moving {
                let mut work = Work::new(&registers);
                work.step(partition, Input::Tick);
                work.finish();
            }
        }
    }
}

/// Tells the coordinators whom nothing is to be expected of.
async fn watch_peers(registers: Arc<Registers>) {
    let mut known = BTreeSet::new();
    loop {
        tokio::time::sleep(WATCH).await;
        let out = registers.links.out_of_reach();
        if out != known {
            for shard in &registers.shards {
                shard.lock().coordinator.expect_nothing_of(&out);
            }
            known = out;
        }
    }
}

async fn settle(registers: Arc<Registers>, mut unsettled: mpsc::Receiver<Settle>) {
    let running = Arc::new(Mutex::new(HashSet::<KeyId>::new()));
    let places = Arc::new(Semaphore::new(SETTLES));
    while let Some((partition, at, rewrite)) = unsettled.recv().await {
        let id = at.id();
        if !running.lock().insert(id) {
            continue;
        }
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let (registers, running) = (Arc::clone(&registers), Arc::clone(&running));
        tokio::spawn(async move {
            let deadline = Instant::now() + SETTLE_TIME;
            registers.settle(partition, at, rewrite, deadline).await;
            running.lock().remove(&id);
            drop(place);
        });
    }
}

/// Compares partition after partition with one other replica, another one each time.
async fn compare(registers: Arc<Registers>) {
    for pass in 0_u64.. {
        let partitions = registers.known_partitions();
        if partitions.is_empty() {
            tokio::time::sleep(COMPARE).await;
        }
        for partition in partitions {
            tokio::time::sleep(COMPARE).await;
            registers.compare(partition, pass);
            if pass % COLLECT_EVERY == 1 {
                registers.collect(partition);
            }
        }
    }
}

impl Registers {
    fn on_durable(&self, event: Durable) {
        let mut work = Work::new(self);
        match event {
            Durable::Batch(partition, life, seq) => work.landed(partition, life, Some(seq)),
            Durable::Failed(partition, life, error) => {
                tracing::warn!(%partition, %error, "a batch of a replica was not stored");
                work.landed(partition, life, None);
            }
            Durable::Ceiling(ceiling) => {
                let now = self.now();
                for shard in 0..SHARDS as u32 {
                    work.coordinate(Partition(shard), |coordinator, out| {
                        coordinator.reserved(now, ceiling, out);
                    });
                    work.coordinate_eventual(Partition(shard), |coordinator, out| {
                        coordinator.reserved(now, ceiling, out);
                    });
                }
            }
        }
        work.finish();
    }

    /// Handles what is due; whether anything is under way.
    fn tick(&self) -> bool {
        let now = self.now();
        let mut is_busy = false;
        let mut work = Work::new(self);
        for shard in 0..SHARDS as u32 {
            let partition = Partition(shard);
            let due = {
                let shard = self.shard_of(partition).lock();
                is_busy |= !shard.is_idle();
                let wake = shard.next_wake_ms();
                wake.is_some_and(|at| at <= now.elapsed_ms)
            };
            if due {
                work.coordinate(partition, |coordinator, out| coordinator.tick(now, out));
                work.coordinate_eventual(partition, |coordinator, out| coordinator.tick(now, out));
            }
        }
        work.finish();
        is_busy
    }

    fn compare(&self, partition: Partition, pass: u64) {
        let Some(host) = self.host_of(partition) else {
            return;
        };
        let mut host = host.lock();
        let Some(config) = host.replica.config().cloned() else {
            return;
        };
        if config.stage != Stage::Stable || config.index(self.me.node).is_none() {
            return;
        }
        let others = config
            .nodes(config.old)
            .filter(|node| *node != self.me.node);
        let others: Vec<_> = others.collect();
        let Some(peer) = others.get(pass as usize % others.len().max(1)).copied() else {
            return;
        };
        let wishes = host.compare_with(peer, &self.store, partition);
        drop(host);
        let mut work = Work::new(self);
        work.fulfil(partition, wishes);
        work.finish();
    }

    /// Begins a collection where this node is the first replica and there is something to
    /// collect.
    fn collect(&self, partition: Partition) {
        let Some(host) = self.host_of(partition) else {
            return;
        };
        if self.store.summary(partition).tombstones == 0 {
            return;
        }
        let mut host = host.lock();
        let Some(config) = host.replica.config().cloned() else {
            return;
        };
        if config.nodes(config.old).next() != Some(self.me.node) {
            return;
        }
        let older = COLLECT_OLDER_THAN.as_millis() as u64;
        let upto = Ballot {
            epoch: config.epoch,
            time: HybridTime::from_unix_ms(self.now().unix_ms.saturating_sub(older)),
            slot: NodeSlot(u16::MAX),
        };
        let Some(collector) = Collector::new(config, upto, broken_rules()) else {
            return;
        };
        let sends = collector.ask();
        host.collector = Some(collector);
        drop(host);
        let mut work = Work::new(self);
        for (to, envelope) in sends {
            work.send(to, envelope);
        }
        work.finish();
    }
}

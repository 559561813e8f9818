//! Periodic work: reports durable writes, enforces deadlines, continues copies, reconciles keys
//! that differ, compares replicas, and collects tombstones and expired values.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use torc_record::{Ballot, HybridTime, NodeSlot, to_millis, to_usize};
use torc_replication::{Collector, Input, Locator, OutOfReach, Request, Storage};
use torc_ring::Partition;
use torc_ring::topology::Stage;
use torc_store::Scratch;

use super::disk::Disk;
use super::turn::{AHEAD, Outbox, Turn};
use super::{Durable, Reconcile, Registers, Wanted, fetches, hints, scrub};
use crate::mutants::broken_rules;

/// Capacity of the queue of keys to reconcile.
pub(super) const RECONCILES_WAITING: usize = 4_096;
/// Stretches of the disk read at a time.
const READERS: usize = 4;
/// Messages whose keys are read at a time: about the parallel reads that a current disk serves.
const FETCHERS: usize = 32;
/// Keys reconciled at a time.
const RECONCILES_AT_ONCE: usize = 64;
const RECONCILE_TIME: Duration = Duration::from_secs(5);
/// Interval between checks of deadlines while operations are under way.
const BEAT: Duration = Duration::from_millis(2);
/// Interval between repeated requests for copies, and between attempts to store an epoch.
const PULL_AGAIN: Duration = Duration::from_millis(100);
/// Interval between checks of which nodes can be reached.
const WATCH: Duration = Duration::from_millis(20);
/// Partitions that are compared together, so that an idle node wakes up less often.
const COMPARED_TOGETHER: usize = 16;
/// Least pause between comparisons: with 4,096 partitions that are equal, each is compared every 40 s.
const COMPARE: Duration = Duration::from_millis(160);
/// The pause is at least this many times what the last comparisons took to read here. Replicas differ
/// while writes are under way, and comparing those that differ reads every record.
const COMPARE_PAUSE: u32 = 10;
/// A collection ignores younger records, whose writes may still be under way.
const COLLECT_OLDER_THAN: Duration = Duration::from_secs(10);
/// Every how many comparisons of a partition a collection begins.
const COLLECT_EVERY: u64 = 4;

/// Runs all periodic work until the node stops; `worker` is the runtime of the streams to peers.
pub fn run(
    registers: &Arc<Registers>,
    scratch: &Scratch,
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
        // The runtime that sends the answers released by durable writes.
        let cancel = cancel.clone();
        let telling = tell_durable(Arc::clone(registers), inbox);
        let telling = async move {
            cancel.run_until_cancelled(telling).await;
        };
        tasks.spawn_on(telling, worker);
    }
    spawn(Box::pin(read(Arc::clone(registers))));
    spawn(Box::pin(fetch(Arc::clone(registers))));
    if let Some(unreconciled) = registers.unreconciled.lock().take() {
        spawn(Box::pin(reconcile(Arc::clone(registers), unreconciled)));
    }
    spawn(Box::pin(beat(Arc::clone(registers))));
    spawn(Box::pin(pull_again(Arc::clone(registers))));
    spawn(Box::pin(watch_peers(Arc::clone(registers))));
    spawn(Box::pin(compare(Arc::clone(registers))));
    spawn(Box::pin(scrub::run(Arc::clone(registers))));
    spawn(Box::pin(hints::write(
        Arc::clone(registers),
        scratch.clone(),
    )));
    spawn(Box::pin(hints::hand_over(Arc::clone(registers))));
}

async fn tell_durable(registers: Arc<Registers>, mut inbox: mpsc::UnboundedReceiver<Durable>) {
    let mut events = Vec::new();
    while inbox.recv_many(&mut events, 256).await > 0 {
        let mut outbox = Outbox::of_thread();
        for event in events.drain(..) {
            outbox = registers.on_durable(event, outbox);
        }
        outbox.send(&registers.links);
    }
}

pub(super) async fn beat(registers: Arc<Registers>) {
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
        registers.repeat();
    }
}

/// Reads what replicas have requested, a few stretches at a time, on background threads.
pub(super) async fn read(registers: Arc<Registers>) {
    let places = Arc::new(Semaphore::new(READERS));
    // Acquires a permit first, so that the most urgent reading at that moment is next.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let (partition, reading) = registers.readings.pop().await;
        let registers = Arc::clone(&registers);
        tokio::task::spawn_blocking(move || {
            let (began, is_of_comparison) = (Instant::now(), reading.is_of_comparison());
            let readout = reading.run(&Disk::new(&registers.store, &registers.keys, partition));
            if is_of_comparison {
                let took = began.elapsed().as_secs_f64();
                registers.metrics.compared_s.inc_by(took);
            }
            registers.tell(partition, Input::Read(readout));
            drop(place);
        });
    }
}

/// Reads the keys of messages into the page cache, then handles the messages.
pub(super) async fn fetch(registers: Arc<Registers>) {
    let places = Arc::new(Semaphore::new(FETCHERS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let fetches::Wanted {
            from,
            envelope,
            bytes,
        } = registers.fetches.pop().await;
        let registers = Arc::clone(&registers);
        tokio::task::spawn_blocking(move || {
            let partition = envelope.partition;
            let disk = Disk::new(&registers.store, &registers.keys, partition);
            for at in envelope.message.keys() {
                let _ = disk.get(&at);
            }
            registers.metrics.fetched.inc();
            registers.tell(partition, Input::Fetched { from, envelope });
            registers.fetches.done(bytes);
            drop(place);
        });
    }
}

/// Tells the coordinators which nodes are out of reach.
async fn watch_peers(registers: Arc<Registers>) {
    let mut known = OutOfReach::default();
    loop {
        tokio::time::sleep(WATCH).await;
        let out = registers.links.out_of_reach();
        if out != known {
            for shard in &registers.shards {
                shard.lock().coordinator.on_peers(&out);
            }
            registers.links.noticed(&out);
            known = out;
        }
    }
}

/// Reconciles keys, each once at a time. Abandons those under way when dropped.
async fn reconcile(registers: Arc<Registers>, mut unreconciled: mpsc::Receiver<Reconcile>) {
    let mut tasks = JoinSet::new();
    let mut running = HashMap::<task::Id, Locator>::new();
    loop {
        tokio::select! {
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.map_or_else(|panicked| panicked.id(), |(id, ())| id);
                running.remove(&id);
            }
            wanted = unreconciled.recv(), if running.len() < RECONCILES_AT_ONCE => {
                let Some((partition, at, rewrite)) = wanted else {
                    return;
                };
                if running.values().any(|it| *it == at) {
                    continue;
                }
                let (registers, key) = (Arc::clone(&registers), at.clone());
                let reconciling = async move {
                    registers.reconcile(partition, key, rewrite).await;
                };
                running.insert(tasks.spawn(reconciling).id(), at);
            }
        }
    }
}

/// Compares each partition with one other replica, a different one on each pass.
async fn compare(registers: Arc<Registers>) {
    let mut compared_s = 0.0;
    for pass in 0_u64.. {
        let partitions = registers.known_partitions();
        if partitions.is_empty() {
            tokio::time::sleep(COMPARE).await;
        }
        for together in partitions.chunks(COMPARED_TOGETHER) {
            let before_s = std::mem::replace(&mut compared_s, registers.metrics.compared_s.get());
            let took = Duration::from_secs_f64((compared_s - before_s).max(0.0));
            tokio::time::sleep(COMPARE.max(took * COMPARE_PAUSE)).await;
            registers.compare(together, pass);
            if pass % COLLECT_EVERY == 1 {
                for partition in together {
                    registers.collect(*partition).await;
                }
            }
        }
    }
}

impl Registers {
    pub(super) fn on_durable(&self, event: Durable, mut outbox: Outbox) -> Outbox {
        match event {
            Durable::Batches(names, failures) => {
                let mut failures = failures.into_iter().peekable();
                // One turn made these batches, so they all belong to one shard.
                let Some((partition, ..)) = names.first() else {
                    return outbox;
                };
                let mut turn = Turn::with(self, self.shard_of(*partition), outbox);
                for (at, name) in names.iter().enumerate() {
                    if let Some((later, ..)) = names.get(at + AHEAD) {
                        turn.prefetch(*later);
                    }
                    let lost = failures.next_if(|(failed, _)| *failed == at);
                    turn.on_batch_ended(*name, lost.as_ref().map(|(_, error)| error));
                }
                turn.close()
            }
            Durable::Ceiling(ceiling) => {
                for shard in 0..self.shards.len() {
                    let mut turn = Turn::with(self, shard, outbox);
                    turn.reserved(ceiling);
                    outbox = turn.close();
                }
                outbox
            }
        }
    }

    /// Handles what is due; returns whether any operation is under way.
    fn tick(&self) -> bool {
        let mut is_busy = false;
        for (at, shard) in self.shards.iter().enumerate() {
            let (is_idle, wake) = {
                let shard = shard.lock();
                (shard.is_idle(), shard.coordinator.next_wake_ms())
            };
            is_busy |= !is_idle;
            if wake.is_some_and(|wake| wake <= self.now().elapsed_ms) {
                let mut turn = Turn::of(self, at);
                let now = turn.now();
                turn.coordinate(|coordinator, out| coordinator.tick(now, out));
                turn.end();
            }
        }
        is_busy
    }

    /// Repeats what replicas have asked for in vain.
    pub(super) fn repeat(&self) {
        for shard in 0..self.shards.len() {
            let mut turn = Turn::of(self, shard);
            for partition in turn.moving() {
                turn.repeat(partition);
            }
            turn.end();
        }
    }

    fn compare(&self, partitions: &[Partition], pass: u64) {
        let mut outbox = Outbox::of_thread();
        for partition in partitions {
            let mut turn = Turn::with(self, self.shard_of(*partition), outbox);
            let slot = turn.slot(*partition);
            let mut effects = Vec::new();
            if let Some(config) = slot.replica.config().cloned()
                && config.stage == Stage::Stable
                && config.index(self.me.node).is_some()
            {
                let others = config.nodes(config.old);
                let others: Vec<_> = others.filter(|node| *node != self.me.node).collect();
                if let Some(peer) = others.get(to_usize(pass) % others.len().max(1)) {
                    slot.replica.compare_with(*peer, &mut effects);
                }
            }
            turn.perform(*partition, effects);
            outbox = turn.close();
        }
        outbox.send(&self.links);
    }

    /// Begins a collection if this node is the first replica and there may be something to collect:
    /// tombstones or expired values.
    async fn collect(&self, partition: Partition) {
        let store = self.store.clone();
        // After a purge, the summary reads the partition's slices.
        let counting = tokio::task::spawn_blocking(move || {
            let may_be_collected = store.may_be_collected(partition);
            may_be_collected.then(|| store.summary(partition).tombstones)
        });
        if let Ok(Some(tombstones)) = counting.await {
            self.begin_collection(partition, tombstones > 0);
        }
    }

    fn begin_collection(&self, partition: Partition, has_tombstones: bool) {
        let mut turn = self.turn(partition);
        let older = to_millis(COLLECT_OLDER_THAN);
        let time = HybridTime::from_unix_ms(turn.now().unix_ms.saturating_sub(older));
        let slot = turn.slot(partition);
        if !has_tombstones && slot.replica.first_expiry_ms() > time.unix_ms() {
            return;
        }
        let Some(config) = slot.replica.config().cloned() else {
            return;
        };
        if config.nodes(config.old).next() != Some(self.me.node) {
            return;
        }
        let upto = Ballot {
            epoch: config.epoch,
            time,
            slot: NodeSlot(u16::MAX),
        };
        let Some(collector) = Collector::new(config, upto, broken_rules()) else {
            return;
        };
        let sends = collector.ask();
        slot.collector = Some(collector);
        for (to, envelope) in sends {
            turn.send(to, envelope);
        }
        turn.end();
    }

    /// Brings the replicas of a key to one version, as the mode of its namespace requires.
    async fn reconcile(self: &Arc<Self>, partition: Partition, at: Locator, rewrite: bool) {
        if self.keys.load().is_foreign(at.borrowed()) {
            return self.note_foreign(partition, 1);
        }
        let Some(rules) = self.rules(at.namespace) else {
            // Comparison will find the difference again.
            self.metrics.reconciles_dropped.inc();
            return;
        };
        let wanted = Wanted {
            partition,
            at,
            rules,
            request: Request::Reconcile { rewrite },
            deadline: Instant::now() + RECONCILE_TIME,
            trace: None,
        };
        self.operate(wanted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{HERE, ME, Rig, record};
    use std::sync::mpsc::sync_channel;
    use torc_record::{Digest, DigestKey, Epoch, State};
    use torc_record::{ReplicaBatch, ReplicaFacts};
    use torc_replication::Config;
    use torc_ring::NodeId;
    use torc_store::testing::{Call, CrashFs};

    #[tokio::test]
    async fn a_comparison_waits_longer_after_those_that_read_for_long() {
        for took_s in [0.0, 1_000.0] {
            let mut rig = Rig::start(|_| {});
            let founded = Config::founded(HERE, Epoch(2), &[ME, NodeId(2)]);
            rig.adopt(&Arc::new(founded)).await;
            // Nobody has an address, so what is sent is dropped.
            let sent = |rig: &Rig| {
                let metrics = rig.metrics();
                let mut lines = metrics.lines();
                let line = lines
                    .find_map(|it| it.strip_prefix("link_dropped_total{reason=\"no_address\"} "));
                line.unwrap().to_owned()
            };
            let before = sent(&rig);
            rig.registers.metrics.compared_s.inc_by(took_s);
            let comparing = tokio::spawn(compare(Arc::clone(&rig.registers)));
            if took_s == 0.0 {
                let deadline = Instant::now() + Duration::from_secs(60);
                while sent(&rig) == before {
                    assert!(Instant::now() < deadline, "it compares nothing");
                    rig.during(tokio::time::sleep(BEAT)).await;
                }
            } else {
                rig.during(tokio::time::sleep(3 * COMPARE)).await;
                assert_eq!(sent(&rig), before);
            }
            comparing.abort();
        }
    }

    #[tokio::test]
    async fn keys_that_are_being_reconciled_are_abandoned_with_the_loop() {
        let mut rig = Rig::start(|_| {});
        let registers = Arc::clone(&rig.registers);
        rig.know_digests(DigestKey([7; 32]));
        // Nobody else answers.
        let nodes = [ME, NodeId(2), NodeId(3)];
        let founded = Config::founded(HERE, Epoch(2), &nodes);
        rig.adopt(&Arc::new(founded)).await;
        let mut at = Locator::of(&record(7, Vec::new()));
        at.digest = Digest::of(&DigestKey([7; 32]), at.namespace, at.key.as_bytes());
        let unreconciled = registers.unreconciled.lock().take().unwrap();
        let running = tokio::spawn(reconcile(Arc::clone(&registers), unreconciled));
        registers.reconcile_later(HERE, &at, false);
        let waiting = || {
            registers.shards[registers.shard_of(HERE)]
                .lock()
                .waiting
                .len()
        };
        rig.during(crate::rig::until("it is under way", || waiting() == 1))
            .await;
        running.abort();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting(), 0);
    }

    /// A tombstone in a slice, above the watermark of a collection.
    async fn store_tombstone(rig: &Rig) {
        let store = &rig.registers.store;
        let mut tombstone = record(7, Vec::new());
        tombstone.state = State::Tombstone;
        tombstone.ballot.time = HybridTime(9);
        let mut purge = tombstone.ballot;
        purge.time = HybridTime(5);
        let records = ReplicaBatch {
            records: vec![tombstone],
            ..ReplicaBatch::default()
        };
        let purge = ReplicaBatch {
            purge: Some(purge),
            meta: Some(ReplicaFacts {
                collected: purge,
                ..ReplicaFacts::default()
            }),
            ..ReplicaBatch::default()
        };
        for (is_purge, batch) in [(false, records), (true, purge)] {
            let (done, durable) = tokio::sync::oneshot::channel();
            store.apply_many([(HERE, batch)], |applied| {
                assert!(applied.failed.is_empty());
                done.send(()).unwrap();
            });
            durable.await.unwrap();
            if !is_purge {
                store.flush().await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_collection_reads_slices_beside_the_runtime() {
        let disk = CrashFs::new();
        let rig = Rig::on(Arc::new(disk.clone()), |_| {});
        store_tombstone(&rig).await;
        let (release, released) = sync_channel::<()>(0);
        disk.before(Call::Read, "segment-", 0, move || {
            // Fails once the test has panicked.
            let _ = released.recv_timeout(Duration::from_secs(20));
        });
        let registers = Arc::clone(&rig.registers);
        let collecting = tokio::spawn(async move { registers.collect(HERE).await });
        let releasing = async {
            while !disk.is_used_up() {
                tokio::task::yield_now().await;
            }
            release.send(()).unwrap();
        };
        releasing.await;
        collecting.await.unwrap();
        assert!(disk.is_used_up(), "the slice was read");
    }
}

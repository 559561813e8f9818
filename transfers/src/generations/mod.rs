//! Fetches the slices of generations to this node, deletes those of dropped generations, and
//! reports to the topology group. The first records of an ordinary namespace come in the same way, but become
//! records like any others.
//!
//! The node repeatedly compares its store with the adopted topology: for each partition that it
//! holds and each generation with keys there, it needs a readable slice. So the reason for a
//! missing slice does not matter: a newly attached generation, a moving partition, a lost disk, or
//! a kill.
//!
//! It copies a slice from another replica that is ready, as in a move; otherwise from where the
//! generation was built, a directory or an object store (`source`). What was fetched stays.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use torc_member::fault::store_fault;
use torc_proto::v1::CopySlicesRequest;
use torc_proto::{Fault, Reason};
use torc_record::NamespaceId;
use torc_ring::topology::{Command, Generation, RoutingTable};
use torc_ring::{NodeId, Partition};

pub use self::source::Source;
use crate::receive::receive;
use crate::{Transfers, failed};

/// Interval between checks if no topology arrives.
const LOOK: Duration = Duration::from_secs(1);
/// Longest pause before a generation is fetched again: after a failure, and after damage, which lasts
/// until the source is repaired.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
const LONGEST_PAUSE_DAMAGED: Duration = Duration::from_secs(120);
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Generations fetched at a time: a slow source does not hold up the others.
const TOGETHER: usize = 4;
/// Slices copied from other nodes at a time.
const COPIES: usize = 16;

/// Maintains generations until the node stops.
pub async fn run(transfers: Arc<Transfers>) {
    // Two loops, because fetching may take hours and promotions wait for reports.
    let both = async { tokio::join!(fetch_all(&transfers), report_all(&transfers)) };
    transfers.cancel.run_until_cancelled(both).await;
}

/// What this node knows of its fetches since it started.
#[derive(Debug, Default)]
pub struct Fetches {
    /// The partitions whose first records of an ordinary namespace it has taken.
    taken: Mutex<BTreeSet<(NamespaceId, Partition)>>,
    /// Why it could not fetch slices when it last tried.
    problems: Mutex<BTreeMap<NamespaceId, String>>,
}

impl Fetches {
    fn add(&self, id: NamespaceId, partitions: impl IntoIterator<Item = Partition>) {
        let partitions = partitions.into_iter();
        self.taken.lock().extend(partitions.map(|it| (id, it)));
    }

    fn has_taken(&self, id: NamespaceId, partition: Partition) -> bool {
        self.taken.lock().contains(&(id, partition))
    }

    fn note(&self, id: NamespaceId, fetched: &Result<(), Fault>) {
        let mut problems = self.problems.lock();
        match fetched {
            Ok(()) => drop(problems.remove(&id)),
            Err(fault) => {
                let why = fault.message.chars().take(1_000).collect();
                problems.insert(id, why);
            }
        }
    }

    /// Why slices of generations are missing, by the generation's number, in at most 1,000 characters.
    pub fn problems(&self) -> Vec<(u32, String)> {
        let problems = self.problems.lock();
        let listed = problems.iter().map(|(id, why)| (id.number(), why.clone()));
        listed.collect()
    }

    fn forget_all_but(&self, table: &RoutingTable) {
        let is_known = |id: &NamespaceId| table.generations.contains_key(id);
        self.taken.lock().retain(|(id, _)| is_known(id));
        self.problems.lock().retain(|id, _| is_known(id));
    }
}

/// A generation that could not be fetched completely.
struct Failed {
    missing: BTreeSet<Partition>,
    /// From there.
    source: String,
    pause: Duration,
    until: Instant,
}

async fn fetch_all(transfers: &Arc<Transfers>) {
    let mut adopted = transfers.member.adopted.subscribe();
    let mut fetching = FuturesUnordered::new();
    let mut under_way = BTreeSet::new();
    let mut failed: BTreeMap<NamespaceId, Failed> = BTreeMap::new();
    loop {
        if let (Ok(table), Some(me)) =
            (transfers.member.routing(), transfers.member.identity.node())
            && transfers.member.registers.get().is_some()
        {
            if let Err(fault) = drop_what_is_gone(transfers, &table, me).await {
                tracing::warn!(%fault, "could not drop slices of static namespaces; retrying");
            }
            failed.retain(|id, _| table.generations.contains_key(id));
            transfers.fetches.forget_all_but(&table);
            for generation in table.generations.values() {
                let id = generation.id;
                if under_way.len() == TOGETHER || under_way.contains(&id) {
                    continue;
                }
                let missing = missing(transfers, &table, me, generation);
                let missing = takable(transfers, generation, missing);
                let pauses = failed.get(&id).is_some_and(|it| {
                    let is_same = it.source == source_of(generation);
                    is_same && it.until > Instant::now() && missing.is_subset(&it.missing)
                });
                if missing.is_empty() {
                    // Perhaps its partitions have moved away.
                    transfers.fetches.note(id, &Ok(()));
                    continue;
                }
                if pauses {
                    continue;
                }
                under_way.insert(id);
                let (table, generation) = (Arc::clone(&table), Arc::clone(generation));
                fetching.push(async move {
                    let fetched = fetch(transfers, &table, me, &generation, missing.clone()).await;
                    (generation, missing, fetched)
                });
            }
        }
        tokio::select! {
            Some((generation, missing, fetched)) = fetching.next() => {
                under_way.remove(&generation.id);
                transfers.fetches.note(generation.id, &fetched);
                note(&mut failed, &generation, missing, fetched);
            }
            // Fails only while the node stops.
            _ = tokio::time::timeout(LOOK, adopted.changed()) => {}
        }
    }
}

/// Where a generation was built.
fn source_of(generation: &Generation) -> &str {
    let content = generation.content.as_ref();
    content.map_or("", |content| content.source.as_str())
}

fn note(
    failed: &mut BTreeMap<NamespaceId, Failed>,
    generation: &Generation,
    missing: BTreeSet<Partition>,
    fetched: Result<(), Fault>,
) {
    let (namespace, number) = (&generation.namespace, generation.id.number());
    let Err(fault) = fetched else {
        let slices = missing.len();
        tracing::info!(
            namespace,
            generation = number,
            slices,
            "fetched slices of a generation"
        );
        failed.remove(&generation.id);
        return;
    };
    tracing::warn!(
        namespace,
        generation = number,
        %fault,
        "slices of a generation are still missing on this node; retrying"
    );
    let longest = match fault.reason {
        Reason::Corrupt => LONGEST_PAUSE_DAMAGED,
        _ => LONGEST_PAUSE,
    };
    let before = failed.get(&generation.id);
    let pause = before.map_or(LOOK, |before| longest.min(before.pause * 2));
    let until = Instant::now() + pause;
    let now = Failed {
        missing,
        source: source_of(generation).to_owned(),
        pause,
        until,
    };
    failed.insert(generation.id, now);
}

/// Reports each adopted topology, and each generation that this node holds.
async fn report_all(transfers: &Transfers) {
    let mut adopted = transfers.member.adopted.subscribe();
    loop {
        if let (Ok(table), Some(me)) =
            (transfers.member.routing(), transfers.member.identity.node())
            && transfers.member.registers.get().is_some()
        {
            let reported = async {
                tell_of_switches(transfers, me).await?;
                tell_of_held(transfers, &table, me).await
            };
            if let Err(fault) = reported.await {
                tracing::debug!(%fault, "the topology group did not take a report; retrying");
            }
        }
        // Fails only while the node stops.
        let _ = tokio::time::timeout(LOOK, adopted.changed()).await;
    }
}

/// Reports each generation of which this node holds all the slices that it must.
async fn tell_of_held(
    transfers: &Transfers,
    table: &RoutingTable,
    me: NodeId,
) -> Result<(), Fault> {
    for generation in table.generations.values() {
        let number = generation.id.number();
        let is_known = transfers.group.topology().is_some_and(|topology| {
            let known = topology.generation(number);
            known.is_none_or(|known| known.ready.contains(&me))
        });
        if !is_known && missing(transfers, table, me, generation).is_empty() {
            let holds = Command::HoldsGeneration {
                node: me,
                number,
                epoch: table.epoch,
            };
            propose(transfers, holds).await?;
        }
    }
    Ok(())
}

async fn propose(transfers: &Transfers, command: Command) -> Result<(), Fault> {
    let deadline = Instant::now() + PROPOSE_TIMEOUT;
    transfers.group.propose(command, deadline).await?;
    Ok(())
}

/// Reports that this node no longer acts on an older topology: it now answers gets from the current
/// generations, and its replicas and coordinators are in their new epochs.
async fn tell_of_switches(transfers: &Transfers, me: NodeId) -> Result<(), Fault> {
    // The routing table is replaced before the replicas are.
    let epoch = *transfers.member.adopted.borrow();
    let topology = transfers.group.topology();
    if topology.is_some_and(|topology| topology.must_tell(me, epoch)) {
        propose(transfers, Command::Adopted { node: me, epoch }).await?;
    }
    Ok(())
}

/// Drops slices of dropped generations, slices of partitions that this node is not a replica of,
/// and damaged slices.
async fn drop_what_is_gone(
    transfers: &Arc<Transfers>,
    table: &Arc<RoutingTable>,
    me: NodeId,
) -> Result<(), Fault> {
    let (store, table) = (transfers.store.clone(), Arc::clone(table));
    let dropping = tokio::task::spawn_blocking(move || {
        store.retain_generations(|partition, id| {
            let state = table.state(partition);
            let known = table.generations.contains_key(&id);
            known && state.is_some_and(|state| state.config.index(me).is_some())
        })
    });
    let dropped = dropping.await.map_err(|_| failed("dropping slices"))?;
    let dropped = dropped.map_err(|error| store_fault(&error))?;
    if dropped > 0 {
        tracing::info!(dropped, "dropped slices of generations");
    }
    Ok(())
}

/// The partitions whose slice this node must hold and lacks.
fn missing(
    transfers: &Transfers,
    table: &RoutingTable,
    me: NodeId,
    generation: &Generation,
) -> BTreeSet<Partition> {
    let id = generation.id;
    if generation.creates.is_none() {
        let lacks = |it: &Partition| transfers.store.generation(*it, id).is_none();
        return table.due(me, generation).filter(lacks).collect();
    }
    // Its records may be in other slices by now. So what was taken is noted, until the topology has noted all.
    let topology = transfers.group.topology();
    let known = topology.as_ref().and_then(|it| it.generation(id.number()));
    if known.is_some_and(|known| known.ready.contains(&me)) {
        return BTreeSet::new();
    }
    let lacks = |it: &Partition| !transfers.fetches.has_taken(id, *it);
    table.due(me, generation).filter(lacks).collect()
}

/// The partitions whose slices this node can take now. A replica that adopts its first configuration begins empty, and
/// would lose records that it took before; slices of generations are fetched again.
fn takable(
    transfers: &Transfers,
    generation: &Generation,
    mut missing: BTreeSet<Partition>,
) -> BTreeSet<Partition> {
    if generation.creates.is_some()
        && let Some(registers) = transfers.member.registers.get()
    {
        missing.retain(|partition| registers.config(*partition).is_some());
    }
    missing
}

/// Whether this node holds all slices of generations that a replica of the partition must hold.
pub(crate) fn holds_all(transfers: &Transfers, partition: Partition) -> bool {
    let Ok(table) = transfers.member.routing() else {
        return false;
    };
    let due = table.generations_in(partition);
    // Nothing moves while another one is fetched.
    let mut due = due.filter(|generation| generation.creates.is_none());
    due.all(|generation| {
        transfers
            .store
            .generation(partition, generation.id)
            .is_some()
    })
}

async fn fetch(
    transfers: &Arc<Transfers>,
    table: &Arc<RoutingTable>,
    me: NodeId,
    generation: &Arc<Generation>,
    missing: BTreeSet<Partition>,
) -> Result<(), Fault> {
    let topology = transfers.group.topology();
    let ready = topology.and_then(|topology| {
        let known = topology.generation(generation.id.number())?;
        Some(known.ready.clone())
    });
    let ready = ready.unwrap_or_default();
    let registers = transfers.member.registers()?;
    let may_ask = |node: &NodeId| {
        // Others have merged the first records of an ordinary namespace with their own.
        let is_kept = generation.creates.is_none();
        is_kept && *node != me && ready.contains(node) && !registers.is_out_of_reach(*node)
    };
    let holders = |partition: Partition| -> Vec<NodeId> {
        let config = table.state(partition).map(|state| &state.config);
        let nodes = config.into_iter().flat_map(|config| &config.members);
        nodes.map(|member| member.node).filter(may_ask).collect()
    };
    let wanted: Vec<_> = missing.iter().map(|it| (*it, holders(*it))).collect();
    let copies = wanted.into_iter().map(|(partition, holders)| {
        async move {
            let mut why = None;
            // The slice of one may be damaged, although it once was ready.
            for holder in holders {
                match copy(transfers, holder, partition, generation.id).await {
                    Ok(()) => return (partition, Ok(())),
                    Err(fault) => why = Some(fault),
                }
            }
            (partition, Err(why))
        }
    });
    let copied: Vec<_> = futures::stream::iter(copies)
        .buffer_unordered(COPIES)
        .collect()
        .await;
    let (mut left, mut why) = (missing, None);
    for (partition, copied) in copied {
        match copied {
            Ok(()) => drop(left.remove(&partition)),
            Err(fault) => why = why.or(fault),
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    // The pause depends on the source, which is the last that can have them.
    let from_source = source::take(transfers, generation, left).await;
    from_source.map_err(|fault| match why {
        Some(why) => Fault {
            message: format!("{}; and no other replica has them: {why}", fault.message),
            ..fault
        },
        None => fault,
    })
}

/// Copies a slice from another replica.
async fn copy(
    transfers: &Arc<Transfers>,
    from: NodeId,
    partition: Partition,
    id: NamespaceId,
) -> Result<(), Fault> {
    let request = CopySlicesRequest {
        partition: partition.0,
        generation: id.0,
        ..CopySlicesRequest::default()
    };
    let received = receive(transfers, &transfers.member.recipient(from)?, request).await?;
    let ingest = received.ingest.ok_or_else(|| {
        let message =
            format!("node {from} does not have the slice of partition {partition} either");
        Fault::new(Reason::NotServing, message)
    })?;
    let published = ingest.publish().await;
    published.map(drop).map_err(|error| store_fault(&error))
}

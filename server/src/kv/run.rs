//! The single path of all operations on keys, alone or in a batch: each is checked, then run here
//! or sent to the lead of its partition.
//!
//! An item with a route is for this node. Other items go to their lead, which is only the cheapest
//! choice: any node can coordinate. This node runs items that the lead certainly did not run, and
//! gets that the lead does not answer soon. It retries items while the topology changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use torc_driver::{Registers, Wanted};
use torc_limits::budget::{LongValues, SMALL};
use torc_member::fault::stale;
use torc_member::peers::Recipient;
use torc_proto::v1::Route;
use torc_proto::{Fault, Reason};
use torc_replication::{Request, Rules};
use torc_ring::Partition;
use torc_ring::topology::{ReadGenerations, Role, RoutingTable};
use torc_telemetry::spans::TRACED_ITEMS;

use super::item::{Asked, AtOnce, Item};
use super::node::KvNode;
use super::request::Target;
use crate::call::CallContext;

const BACKOFF: Duration = Duration::from_millis(5);
const LONGEST_BACKOFF: Duration = Duration::from_millis(200);

/// Runs one item.
pub(super) async fn one<I: Item>(
    node: &Arc<KvNode>,
    item: I,
    call: CallContext,
) -> Result<I::Answer, Fault> {
    let answer = many(node, &[item], call, None).await.pop();
    answer.unwrap_or_else(|| Err(lost()))
}

/// Runs all items; returns the answers in the same order. Writes of the same key take effect in this
/// order: one that failed is not run again after a later one of its key that may have taken effect.
/// `generations` is that of the batch that the items are part of.
pub(super) async fn many<I: Item>(
    node: &Arc<KvNode>,
    items: &[I],
    call: CallContext,
    mut generations: Option<&mut ReadGenerations>,
) -> Vec<Result<I::Answer, Fault>> {
    let mut answers: Vec<_> = items.iter().map(|_| None).collect();
    let mut attempts = Attempts::new(call.deadline);
    let mut open: Vec<usize> = (0..items.len()).collect();
    while !open.is_empty() {
        let table = node.member.routing();
        if let (Ok(table), Some(generations)) = (&table, &mut generations)
            && generations.differ(table, items.iter().map(|item| item.place().0))
        {
            open = (0..items.len()).collect();
        }
        let mut failed = Vec::new();
        for (place, answer) in once(node, table, items, open, call).await {
            // Retries only items without a route: a sender that set a route handles retries itself.
            let may_retry = |fault| items[place].route().is_none() && attempts.may_retry(fault);
            if answer.as_ref().is_err_and(may_retry) {
                failed.push(place);
            }
            answers[place] = Some(answer);
        }
        failed.retain(|place| {
            let answered = answers.iter().enumerate();
            let answered = answered.filter_map(|(it, answer)| Some((it, answer.as_ref()?)));
            !is_overtaken(items, *place, answered)
        });
        if !failed.is_empty() && attempts.wait(node).await.is_err() {
            break;
        }
        // Items with the same key keep their order.
        failed.sort_unstable();
        open = failed;
    }
    let answers = answers.into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(|| Err(lost())))
        .collect()
}

/// The partition of an item's key, if it has one.
pub(super) fn partition_of<I: Item>(node: &KvNode, item: Option<&I>) -> Option<Partition> {
    let table = node.member.routing().ok()?;
    Some(item?.target(&table).ok()?.partition)
}

pub(super) fn lost() -> Fault {
    Fault::new(Reason::Internal, "an item was lost: report this")
}

type Answered<I> = (usize, Result<<I as Item>::Answer, Fault>);

/// Items of one attempt, each with its index, by where they are answered.
struct Sorted<I: Item> {
    answered: Vec<Answered<I>>,
    here: Vec<(usize, Task)>,
    elsewhere: BTreeMap<Recipient, (Vec<(usize, I)>, Lengths)>,
    cold: Vec<usize>,
}

impl<I: Item> Sorted<I> {
    fn with_capacity(count: usize) -> Self {
        Self {
            answered: Vec::new(),
            here: Vec::with_capacity(count),
            elsewhere: BTreeMap::new(),
            cold: Vec::new(),
        }
    }

    fn add(&mut self, place: usize, routed: Routed<I>) {
        match routed {
            Routed::Answered(answer) => self.answered.push((place, answer)),
            Routed::Here(task) => self.here.push((place, task)),
            Routed::There(to, item, length) => {
                let (items, lengths) = self.elsewhere.entry(to).or_default();
                items.push((place, item));
                lengths.add(length);
            }
            Routed::Cold => self.cold.push(place),
        }
    }
}

/// Runs each item once, here or at its lead; runs here the items that the lead did not run.
async fn once<I: Item>(
    node: &Arc<KvNode>,
    table: Result<Arc<RoutingTable>, Fault>,
    items: &[I],
    open: Vec<usize>,
    call: CallContext,
) -> Vec<Answered<I>> {
    let table = match table {
        Ok(table) => table,
        Err(fault) => {
            let refused = open.into_iter();
            return refused.map(|place| (place, Err(fault.clone()))).collect();
        }
    };
    let mut sorted = Sorted::with_capacity(open.len());
    for place in open {
        sorted.add(place, route(node, &table, &items[place]));
    }
    let cold = std::mem::take(&mut sorted.cold);
    for (place, routed) in from_disk(node, &table, items, cold).await {
        sorted.add(place, routed);
    }
    let Sorted {
        mut answered,
        here,
        elsewhere,
        ..
    } = sorted;
    let sent = elsewhere
        .into_iter()
        .map(|(to, (items, lengths))| send(node, to, items, lengths, call));
    let (done, sent) = tokio::join!(carry_out::<I>(node, here, call), join_all(sent));
    answered.extend(done);
    let (undone, done): (Vec<Answered<I>>, Vec<_>) = sent
        .into_iter()
        .flatten()
        .partition(|(_, answer)| answer.as_ref().is_err_and(undone::<I>));
    let mut left = Vec::new();
    for (place, answer) in undone {
        if is_overtaken(items, place, done.iter().map(|(it, answer)| (*it, answer))) {
            answered.push((place, answer));
            continue;
        }
        let target = items[place].target(&table);
        match target.and_then(|target| task(&items[place], target)) {
            Ok(task) => left.push((place, task)),
            Err(fault) => answered.push((place, Err(fault))),
        }
    }
    answered.extend(done);
    answered.extend(carry_out::<I>(node, left, call).await);
    answered
}

/// Whether a later item has written the key, or may have. This one would win if it ran after that.
fn is_overtaken<'a, I: Item>(
    items: &[I],
    place: usize,
    answers: impl IntoIterator<Item = (usize, &'a Result<I::Answer, Fault>)>,
) -> bool {
    !I::HARMLESS
        && answers.into_iter().any(|(later, answer)| {
            let may_be_written = answer.as_ref().map_or_else(|it| it.maybe_applied, |_| true);
            later > place && may_be_written && items[later].place() == items[place].place()
        })
}

/// Whether the lead, or the connection to it, failed before anything was changed.
fn undone<I: Item>(fault: &Fault) -> bool {
    let by_the_lead = matches!(
        fault.reason,
        Reason::NotServing | Reason::OwnerUnreachable | Reason::OutOfSpace
    );
    let lost = matches!(fault.reason, Reason::Deadline | Reason::OutcomeUnknown);
    by_the_lead && !fault.maybe_applied || I::HARMLESS && (lost || fault.maybe_applied)
}

/// An item to run here.
pub(super) struct Task {
    pub(super) target: Target,
    request: Request,
}

impl Task {
    /// Whether it takes permits to read a long value.
    pub(super) fn reads_long_value(&self, registers: &Registers) -> bool {
        registers.permits_of(&self.request, &self.target.at) > 0
    }

    /// Converts the task for the registers.
    pub(super) fn wanted(self, call: CallContext) -> (Asked, Wanted) {
        let Target {
            at,
            partition,
            rules,
        } = self.target;
        let asked = Asked {
            namespace: at.namespace,
            digest: at.digest,
            partition,
            condition: self.request.condition(),
        };
        let wanted = Wanted {
            partition,
            at,
            rules,
            request: self.request,
            deadline: call.deadline,
            trace: call.trace,
        };
        (asked, wanted)
    }
}

/// The task for an item. Counts its access here.
fn task<I: Item>(item: &I, target: Target) -> Result<Task, Fault> {
    let request = item.request(&target)?;
    count(&target);
    Ok(Task { target, request })
}

/// Counts an access that this node answers.
fn count(target: &Target) {
    let at = &target.at;
    torc_hot::count(at.namespace, &at.digest, at.key.as_bytes());
}

/// Where an item is answered.
pub(super) enum Routed<I: Item> {
    Answered(Result<I::Answer, Fault>),
    Here(Task),
    /// At another node; the item has a route.
    There(Recipient, I, Length),
    /// This node may answer, but must read the disk.
    Cold,
}

/// Checks an item and decides where it goes.
pub(super) fn route<I: Item>(node: &KvNode, table: &RoutingTable, item: &I) -> Routed<I> {
    let routed = || {
        let target = item.target(table)?;
        match item.at_once(node, &target)? {
            AtOnce::Answer(answer) => {
                count(&target);
                Ok(Routed::Answered(Ok(answer)))
            }
            AtOnce::No => ask(node, table, item, target),
            AtOnce::Cold => Ok(Routed::Cold),
        }
    };
    routed().unwrap_or_else(|fault| Routed::Answered(Err(fault)))
}

/// Where to send an item that this node cannot answer on its own.
fn ask<I: Item>(
    node: &KvNode,
    table: &RoutingTable,
    item: &I,
    target: Target,
) -> Result<Routed<I>, Fault> {
    if let Some((to, route)) = recipient_of(node, table, item, &target)? {
        let length = Length::of::<I>(node, table, &target);
        return Ok(Routed::There(to, item.routed(route, &target), length));
    }
    task(item, target).map(Routed::Here)
}

/// What this node knows about the length of a value that another node reads for it.
#[derive(Clone, Copy)]
pub(super) enum Length {
    /// At most 64 KiB, or nothing is read.
    Short,
    /// From this node's own replica: the permits that the value takes.
    Long(u32),
    /// At most as long as the longest value that this node has seen, which takes these permits.
    Unknown(u32),
}

impl Length {
    fn of<I: Item>(node: &KvNode, table: &RoutingTable, target: &Target) -> Self {
        if I::ROLE != Role::Read {
            return Self::Short;
        }
        let me = node.member.identity.node();
        let state = table.state(target.partition);
        let is_here = state.zip(me);
        let is_here = is_here.is_some_and(|(state, me)| state.config.index(me).is_some());
        if is_here && let Some(registers) = node.member.registers.get() {
            return match registers.permits_of(&Request::Get, &target.at) {
                0 => Self::Short,
                permits => Self::Long(permits),
            };
        }
        let longest = node
            .limits
            .budget
            .longest()
            .max(node.store.longest_record());
        Self::Unknown(LongValues::permits_of(longest))
    }
}

/// The lengths of the values of a request to another node.
#[derive(Default)]
struct Lengths {
    permits: u32,
    long: usize,
}

impl Lengths {
    fn add(&mut self, length: Length) {
        let permits = match length {
            Length::Short => 0,
            Length::Long(permits) | Length::Unknown(permits) => permits,
        };
        self.permits = self.permits.saturating_add(permits);
        self.long += usize::from(matches!(length, Length::Long(_)));
    }
}

/// Answers items from the disk, on a thread that serves no requests.
async fn from_disk<I: Item>(
    node: &Arc<KvNode>,
    table: &Arc<RoutingTable>,
    items: &[I],
    cold: Vec<usize>,
) -> Vec<(usize, Routed<I>)> {
    if cold.is_empty() {
        return Vec::new();
    }
    // Fails only if the semaphore is closed, which never happens.
    let _reader = node.limits.readers.acquire().await;
    node.metrics.cold_reads.inc_by(cold.len() as u64);
    let asked: Vec<I> = cold.iter().map(|place| items[*place].clone()).collect();
    let (reading, known) = (Arc::clone(node), Arc::clone(table));
    let read = tokio::task::spawn_blocking(move || {
        let read = |item: I| {
            let target = item.target(&known)?;
            let answer = item.read_cold(&reading, &target)?;
            Ok((target, answer))
        };
        asked.into_iter().map(read).collect::<Vec<_>>()
    });
    // Fails only if the reader panics; every item then gets an error.
    let read = read.await.unwrap_or_default().into_iter().map(Some);
    let read = read.chain(std::iter::repeat_with(|| None));
    let routed = |(place, read): (usize, Option<Result<_, _>>)| {
        let routed = read
            .unwrap_or_else(|| Err(lost()))
            .and_then(|(target, answer)| {
                let Some(answer) = answer else {
                    return ask(node, table, &items[place], target);
                };
                count(&target);
                Ok(Routed::Answered(Ok(answer)))
            });
        (
            place,
            routed.unwrap_or_else(|fault| Routed::Answered(Err(fault))),
        )
    };
    cold.into_iter().zip(read).map(routed).collect()
}

/// The node to which the item must be sent, and its route, if it is not this one.
fn recipient_of<I: Item>(
    node: &KvNode,
    table: &RoutingTable,
    item: &I,
    target: &Target,
) -> Result<Option<(Recipient, Route)>, Fault> {
    let Some(state) = table.state(target.partition) else {
        return Ok(None);
    };
    let holds = |node| state.config.index(node).is_some();
    if target.rules == Rules::Static && node.member.identity.node().is_some_and(holds) {
        return Ok(None);
    }
    if let Some(route) = item.route() {
        // A sender that routed by an older topology to a node that is not the lead gets a fault, so
        // that it sends its next operations to the lead.
        let is_lead = node.member.identity.node() == Some(state.lead);
        if route.epoch < state.config.epoch.0 && !is_lead {
            return Err(stale(target.partition, state.config.epoch));
        }
        return Ok(None);
    }
    if node.member.goes_here(state.lead) {
        return Ok(None);
    }
    let Ok(recipient) = Recipient::of(table, state.lead) else {
        return Ok(None);
    };
    let route = Route {
        partition: target.partition.0,
        epoch: state.config.epoch.0,
    };
    Ok(Some((recipient, route)))
}

/// Runs items here, with one visit to each coordinator.
async fn carry_out<I: Item>(
    node: &Arc<KvNode>,
    tasks: Vec<(usize, Task)>,
    call: CallContext,
) -> Vec<Answered<I>> {
    if tasks.is_empty() {
        return Vec::new();
    }
    let registers = match node.member.registers() {
        Ok(registers) => registers,
        Err(fault) => {
            let refused = tasks.into_iter();
            return refused
                .map(|(place, _)| (place, Err(fault.clone())))
                .collect();
        }
    };
    let count = tasks.len();
    let (mut asked, mut wanted) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (number, (place, task)) in tasks.into_iter().enumerate() {
        let trace = call.trace.filter(|_| number < TRACED_ITEMS);
        let (about, want) = task.wanted(CallContext { trace, ..call });
        asked.push((place, about));
        wanted.push(want);
    }
    let outcomes = registers.operate_many(wanted).await;
    let answers = asked.into_iter().zip(outcomes);
    answers
        .map(|((place, asked), outcome)| {
            let answer = outcome.and_then(|outcome| I::answer(node, &asked, outcome));
            (place, answer)
        })
        .collect()
}

/// Runs an item here.
pub(super) async fn here<I: Item>(
    node: &Arc<KvNode>,
    task: Task,
    call: CallContext,
) -> Result<I::Answer, Fault> {
    let answered = carry_out::<I>(node, vec![(0, task)], call).await.pop();
    answered.map_or_else(|| Err(lost()), |(_, answer)| answer)
}

/// Sends items to their lead; returns its answers. One item with a short value goes on this node's
/// session with the lead, where it delays no other; several go in one call. If all values are long
/// and there is no room for them, it sends nothing: this node would have to drop the answers.
async fn send<I: Item>(
    node: &Arc<KvNode>,
    to: Recipient,
    placed: Vec<(usize, I)>,
    lengths: Lengths,
    call: CallContext,
) -> Vec<Answered<I>> {
    node.metrics.forwarded.inc_by(placed.len() as u64);
    let (places, items): (Vec<usize>, Vec<I>) = placed.into_iter().unzip();
    let count = items.len();
    let all = |fault: Fault| (0..count).map(|_| Err(fault.clone())).collect();
    let sending = async {
        let forwards = &node.limits.forwards;
        let taking = forwards.take(to.node(), lengths.permits, call.deadline);
        let _permits = taking.await;
        if lengths.long == count && !node.limits.budget.has_room(SMALL + 1) {
            return Err(node.limits.budget.refuse());
        }
        match <[I; 1]>::try_from(items) {
            Ok([item]) if lengths.permits == 0 && item.is_short() => {
                Ok(vec![item.send_one(node, &to, call).await])
            }
            Ok([item]) => I::send_many(node, &to, vec![item], call).await,
            Err(items) => I::send_many(node, &to, items, call).await,
        }
    };
    let answers: Vec<_> = match sending.await {
        Ok(answers) if answers.len() == count => answers,
        Ok(_) => all(Fault::unknown(
            "a node answered a different batch, so the outcome is unknown: get the keys before you retry, and report this",
        )),
        Err(fault) => all(fault),
    };
    places.into_iter().zip(answers).collect()
}

/// Limits the retries of one operation.
pub(super) struct Attempts {
    deadline: Instant,
    backoff: Duration,
}

impl Attempts {
    pub(super) const fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            backoff: BACKOFF,
        }
    }

    /// Retries only faults of a move or a start. Leaves an overloaded node, and a partition without
    /// a quorum or space, to the caller, who can wait without occupying this node.
    pub(super) fn may_retry(&self, fault: &Fault) -> bool {
        let is_callers = matches!(
            fault.reason,
            Reason::Overloaded | Reason::OwnerUnreachable | Reason::OutOfSpace
        );
        fault.is_retryable() && !is_callers && Instant::now() + self.backoff < self.deadline
    }

    /// Waits for a change of the topology, or briefly.
    pub(super) async fn wait(&mut self, node: &KvNode) -> Result<(), Fault> {
        let mut changes = node.member.adopted.subscribe();
        let _ = tokio::time::timeout(self.backoff, changes.changed()).await;
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
        if Instant::now() >= self.deadline {
            return Err(Fault::new(
                Reason::Deadline,
                "the deadline has passed: retry",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_proto::v1::{GetRequest, PutRequest, PutResponse};

    #[test]
    fn a_write_is_overtaken_by_a_later_one_that_may_have_taken_effect() {
        let put = |key: &'static str| PutRequest {
            key: key.into(),
            ..PutRequest::default()
        };
        let puts = ["a", "b", "a", "a"].map(put);
        let left = Err(Fault::new(Reason::NotServing, "not changed"));
        let is_overtaken_by = |places: &[usize], answer| {
            let answers = places.iter().map(|place| (*place, &answer));
            is_overtaken(&puts, 2, answers)
        };
        assert!(is_overtaken_by(&[3], Ok(PutResponse::default())));
        assert!(is_overtaken_by(&[3], Err(Fault::unknown("in doubt"))));
        assert!(!is_overtaken_by(&[3], left), "both run again, in order");
        let written = Ok(PutResponse::default());
        assert!(!is_overtaken_by(&[0, 1], written), "earlier; another key");
        let gets = [(); 2].map(|()| GetRequest::default());
        let got = Ok(torc_proto::v1::GetResponse::default());
        assert!(!is_overtaken(&gets, 0, [(1, &got)]), "reads have no order");
    }
}

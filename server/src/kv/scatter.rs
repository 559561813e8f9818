//! The items of a batch, carried out here or sent on, one message for each node that
//! leads some of them.
//!
//! An item that came with a route is for this node. An item that a node did not carry
//! out (its answer, or the transport, says so) goes the way of a single operation,
//! which finds out where it belongs now; where partitions have several replicas it is carried
//! out here then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tonic::Status;
use torc_proto::v1::{
    BatchGetRequest, BatchPutRequest, Consistency, GetRequest, GetResponse, GetResult, PutRequest,
    PutResponse, PutResult, Route, get_result, put_result,
};
use torc_proto::{Fault, Reason};
use torc_ring::topology::RoutingTable;

use super::forward::LEAD_TIME;
use super::operate;
use super::request::{Target, Trust};
use crate::peers::within;
use crate::shared::{Shared, store_fault};

/// What each get of a batch adds to the time that another node has for it.
const TIME_FOR_ITEM: Duration = Duration::from_millis(1);

/// A batch's item: a get or a put.
pub(super) trait Item: Clone + Send + Sized + 'static {
    type Answer: Send;
    /// Whether sending it twice changes nothing.
    const HARMLESS: bool;

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault>;
    fn route_mut(&mut self) -> &mut Option<Route>;
    fn set_digest(&mut self, target: &Target);
    /// Carries out at once what can be without waiting; gives the rest back.
    fn together(_shared: &Shared, items: Placed<Self>) -> (Vec<Done<Self::Answer>>, Placed<Self>) {
        (Vec::new(), items)
    }
    fn one(
        shared: &Arc<Shared>,
        item: Self,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
    fn many(
        shared: &Shared,
        address: &str,
        items: Vec<Self>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Vec<Result<Self::Answer, Fault>>, Fault>> + Send;
}

/// Carries out all items; the results are in their order.
pub(super) async fn run<I: Item>(
    shared: &Arc<Shared>,
    items: Vec<I>,
    deadline: Instant,
) -> Vec<Result<I::Answer, Fault>> {
    let mut results: Vec<Option<Result<I::Answer, Fault>>> = Vec::new();
    results.resize_with(items.len(), || None);
    let (here, elsewhere) = split(shared, items);
    let sent = elsewhere
        .into_iter()
        .map(|(address, items)| async move { send(shared, &address, items, deadline).await });
    let (together, here) = I::together(shared, here);
    let done = here
        .into_iter()
        .map(|(place, item)| async move { (place, I::one(shared, item, deadline).await) });
    let (done, sent) = tokio::join!(join_all(done), join_all(sent));
    let done = together.into_iter().chain(done);
    for (place, result) in done.chain(sent.into_iter().flatten()) {
        results[place] = Some(result);
    }
    let missing = || {
        Err(Fault::new(
            Reason::Internal,
            "an item was lost: report this",
        ))
    };
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(missing))
        .collect()
}

type Placed<I> = Vec<(usize, I)>;
/// A result and its place.
type Done<A> = (usize, Result<A, Fault>);

/// What is carried out here, and what goes to which address. Items that are refused
/// anyway are refused here.
fn split<I: Item>(shared: &Shared, items: Vec<I>) -> (Placed<I>, BTreeMap<String, Placed<I>>) {
    let table = shared.routing.load_full();
    let (mut here, mut elsewhere) = (Vec::new(), BTreeMap::<String, Placed<I>>::new());
    for (place, mut item) in items.into_iter().enumerate() {
        match table
            .as_ref()
            .and_then(|table| address_of(shared, table, &mut item))
        {
            Some(address) => elsewhere.entry(address).or_default().push((place, item)),
            None => here.push((place, item)),
        }
    }
    (here, elsewhere)
}

/// Where the item belongs, if not here; it then carries its route.
fn address_of<I: Item>(shared: &Shared, table: &RoutingTable, item: &mut I) -> Option<String> {
    if item.route_mut().is_some() {
        return None;
    }
    let target = item.target(table).ok()?;
    let state = table.state(target.partition)?;
    if shared.goes_here(state.lead) {
        return None;
    }
    let address = table.address(state.lead)?.to_owned();
    *item.route_mut() = Some(Route {
        partition: target.partition.0,
        epoch: state.epoch.0,
    });
    item.set_digest(&target);
    Some(address)
}

/// Sends items to the node that leads them; what it did not do is tried one by one.
async fn send<I: Item>(
    shared: &Arc<Shared>,
    address: &str,
    placed: Placed<I>,
    deadline: Instant,
) -> Vec<(usize, Result<I::Answer, Fault>)> {
    shared.metrics.forwarded.inc_by(placed.len() as u64);
    let items: Vec<I> = placed.iter().map(|(_, item)| item.clone()).collect();
    let count = items.len();
    let all = |fault: Fault| (0..count).map(|_| Err(fault.clone())).collect();
    let answers: Vec<Result<I::Answer, Fault>> =
        match I::many(shared, address, items, deadline).await {
            Ok(answers) if answers.len() == count => answers,
            Ok(_) => all(Fault::unknown("a node answered another batch: report this")),
            Err(fault) => all(fault),
        };
    let finished = placed
        .into_iter()
        .zip(answers)
        .map(|((place, mut item), answer)| async move {
            let again = |fault: &Fault| {
                let passing = fault.is_retryable() && fault.reason != Reason::Overloaded;
                passing || I::HARMLESS && fault.maybe_applied
            };
            let result = match answer {
                Err(fault) if again(&fault) => {
                    // With its route it is carried out here.
                    if !shared.any_node_can() || fault.reason == Reason::StaleEpoch {
                        *item.route_mut() = None;
                    }
                    I::one(shared, item, deadline).await
                }
                result => result,
            };
            (place, result)
        });
    join_all(finished).await
}

fn fault(status: &Status) -> Fault {
    Fault::from_status(status)
}

impl Item for GetRequest {
    type Answer = GetResponse;
    const HARMLESS: bool = true;

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault> {
        let key = self.key.clone();
        Target::check(
            table,
            &self.namespace,
            key,
            &self.digest,
            self.route,
            (Trust::Given, self.quorum),
        )
    }

    fn route_mut(&mut self) -> &mut Option<Route> {
        &mut self.route
    }

    fn set_digest(&mut self, target: &Target) {
        self.digest = target.digest.0.to_vec().into();
    }

    /// One visit to the store for all, which lets the waits for memory overlap.
    fn together(shared: &Shared, items: Placed<Self>) -> (Vec<Done<GetResponse>>, Placed<Self>) {
        let Some(table) = shared.routing.load_full() else {
            return (Vec::new(), items);
        };
        let (mut taken, mut rest) = (Vec::with_capacity(items.len()), Vec::new());
        for (place, item) in items {
            let target = item.target(&table).ok();
            let is_plain = |target: &&Target| {
                let consistency = item.consistency();
                let allowed = target.agreement.check_consistency(consistency).is_ok();
                allowed && consistency != Consistency::Stale
            };
            let pass = target.as_ref().filter(is_plain).and_then(|target| {
                let (gates, partition) = (&shared.gates, target.partition);
                gates.try_enter_as_lead(partition, target.epoch)
            });
            match target.zip(pass) {
                Some((target, pass)) => {
                    operate::count(&target);
                    taken.push((place, target, pass));
                }
                None => rest.push((place, item)),
            }
        }
        let reads: Vec<_> = taken
            .iter()
            .map(|(_, target, _)| (target.namespace, target.digest, target.key.as_bytes()))
            .collect();
        let found = shared.store.get_batch(&reads);
        let answers = taken.iter().zip(found).map(|((place, target, _), found)| {
            let answer = found.map(operate::answer);
            let answer = answer.map(|answer| operate::hinted(shared, target, answer));
            (*place, answer.map_err(|error| store_fault(&error)))
        });
        (answers.collect(), rest)
    }

    async fn one(
        shared: &Arc<Shared>,
        item: Self,
        deadline: Instant,
    ) -> Result<GetResponse, Fault> {
        operate::get(shared, item, deadline).await
    }

    async fn many(
        shared: &Shared,
        address: &str,
        items: Vec<Self>,
        deadline: Instant,
    ) -> Result<Vec<Result<GetResponse, Fault>>, Fault> {
        let left = deadline.saturating_duration_since(Instant::now());
        let lead_time = LEAD_TIME + TIME_FOR_ITEM * items.len() as u32;
        let limit = if shared.any_node_can() {
            left.min(lead_time)
        } else {
            left
        };
        let request = within(limit, BatchGetRequest { items });
        let answer = shared.peers.kv(address)?.batch_get(request).await;
        let results = answer
            .map_err(|status| fault(&status))?
            .into_inner()
            .results;
        let open = |result: GetResult| match result.outcome {
            Some(get_result::Outcome::Ok(ok)) => Ok(ok),
            Some(get_result::Outcome::Fault(wire)) => Err(wire.into()),
            None => Err(Fault::unknown("a node left an item unanswered")),
        };
        Ok(results.into_iter().map(open).collect())
    }
}

impl Item for PutRequest {
    type Answer = PutResponse;
    const HARMLESS: bool = false;

    fn target(&self, table: &RoutingTable) -> Result<Target, Fault> {
        let key = self.key.clone();
        Target::check(
            table,
            &self.namespace,
            key,
            &self.digest,
            self.route,
            (Trust::Recompute, self.quorum),
        )
    }

    fn route_mut(&mut self) -> &mut Option<Route> {
        &mut self.route
    }

    fn set_digest(&mut self, target: &Target) {
        self.digest = target.digest.0.to_vec().into();
    }

    async fn one(
        shared: &Arc<Shared>,
        item: Self,
        deadline: Instant,
    ) -> Result<PutResponse, Fault> {
        operate::put(shared, item, deadline).await
    }

    async fn many(
        shared: &Shared,
        address: &str,
        items: Vec<Self>,
        deadline: Instant,
    ) -> Result<Vec<Result<PutResponse, Fault>>, Fault> {
        let left = deadline.saturating_duration_since(Instant::now());
        let request = within(left, BatchPutRequest { items });
        let answer = shared.peers.kv(address)?.batch_put(request).await;
        let results = answer
            .map_err(|status| fault(&status))?
            .into_inner()
            .results;
        let open = |result: PutResult| match result.outcome {
            Some(put_result::Outcome::Ok(ok)) => Ok(ok),
            Some(put_result::Outcome::Fault(wire)) => Err(wire.into()),
            None => Err(Fault::unknown("a node left an item unanswered")),
        };
        Ok(results.into_iter().map(open).collect())
    }
}

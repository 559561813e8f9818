//! Many keys in few requests.
//!
//! A batch of gets goes to few nodes ([`gather`]), one of puts to the leads. It is cut by node and
//! by size ([`plan`]) into concurrent requests. Items that
//! may be retried are cut again, with the newest topology, and resent until the
//! deadline. Every item has its own outcome: a batch is not a transaction.

mod gather;
mod kind;
mod plan;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use tokio::time::Instant;
use torc_proto::{Fault, MAX_BATCH_ITEMS, Reason};
use torc_record::{Digest, NamespaceId};
use torc_ring::Partition;
use torc_ring::topology::NamespaceMode;

use crate::call::{Call, digest_to_wire};
use crate::client::{checked_key, checked_value};
use crate::core::Target;
use crate::peer::Peer;
use crate::peer::attempt::{AttemptTimeout, attempt_with_timeout};
use crate::retry::{Failure, Nature, Stop, blame};
use crate::view::View;
use crate::{Client, Error, PutOptions, Value, Version};

use gather::{Destinations, gather};
use kind::{Gets, Kind, Outcome, Puts, Record};
use plan::{Chunk, Indices, Limits, chunks, waves};

/// Bytes of keys and values in one request: well below the largest message, so a
/// request does not delay others on its connection for long.
const CHUNK_BYTES: usize = 4 << 20;

/// Concurrent requests of one batch.
const IN_FLIGHT: usize = 16;

/// Operations on many keys.
impl Client {
    /// Gets the values of any number of keys, in the order of the keys.
    ///
    /// Goes to as few nodes as hold all keys, and to more from 128 keys on; in eventual namespaces,
    /// to the leads. Costs a round trip per 1,000 keys of a node, up to 16 at a time. A node's
    /// answer is at most 16 MiB: for large values, the library halves requests until their answers
    /// fit, and asks at once for what a node has left out. The deadline covers the whole call;
    /// extend it for large batches with [`Client::with_deadline`].
    ///
    /// # Errors
    /// For each key, those of [`Client::get`]. For the call:
    /// [`ErrorKind::NoSuchNamespace`](crate::ErrorKind::NoSuchNamespace), or
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) if no topology was
    /// available.
    pub fn batch_get(
        &self,
        keys: impl IntoIterator<Item = impl Into<Bytes>>,
    ) -> impl Future<Output = Result<Vec<Result<Option<Value>, Error>>, Error>> + Send {
        let keys: Vec<_> = keys.into_iter().map(checked_key).collect();
        let (namespace, quorum) = (self.namespace_name(), self.quorum());
        let core = Arc::clone(self.core());
        let gets = Gets {
            namespace,
            core,
            quorum,
            trace: self.trace_of_batch(),
        };
        Batch::run(self, gets, keys)
    }

    /// Stores any number of records and returns their versions, in the order of the
    /// records. Each is stored or refused on its own; this is not a transaction. Of
    /// several records of one key, the last one wins, unless an earlier one's outcome
    /// is unknown: that one may still happen later.
    ///
    /// Costs a round trip per 1,000 records or 4 MiB of a node, up to 16 at a time; a
    /// key that occurs n times costs n successive round trips. The deadline covers the
    /// whole call; extend it for large batches with [`Client::with_deadline`].
    ///
    /// # Errors
    /// For each record, those of [`Client::put`]. For the call, with
    /// nothing stored, those of [`Client::batch_get`].
    pub fn batch_put(
        &self,
        records: impl IntoIterator<Item = (impl Into<Bytes>, impl Into<Bytes>)>,
    ) -> impl Future<Output = Result<Vec<Result<Version, Error>>, Error>> + Send {
        let plain = |(key, value)| (key, value, PutOptions::default());
        self.batch_put_with(records.into_iter().map(plain))
    }

    /// [`Client::batch_put`] with options for each record.
    ///
    /// # Errors
    /// For each record, those of [`Client::put_with`]. For the call,
    /// with nothing stored, those of [`Client::batch_get`].
    pub fn batch_put_with(
        &self,
        records: impl IntoIterator<Item = (impl Into<Bytes>, impl Into<Bytes>, PutOptions)>,
    ) -> impl Future<Output = Result<Vec<Result<Version, Error>>, Error>> + Send {
        let checked = |(key, value, options): (_, _, PutOptions)| {
            Ok(Record {
                key: checked_key(key)?,
                value: checked_value(value)?,
                condition: options.condition,
                expiry: options.expiry()?,
            })
        };
        let records: Vec<_> = records.into_iter().map(checked).collect();
        let (namespace, quorum) = (self.namespace_name(), self.quorum());
        let puts = Puts {
            namespace,
            quorum,
            trace: self.trace_of_batch(),
        };
        Batch::run(self, puts, records)
    }
}

/// An item that passed the checks.
struct Item<W> {
    digest: Digest,
    what: W,
}

/// A running batch. `items` and `outcomes` are by number of the input; an item refused
/// before anything was sent has an outcome and no item.
struct Batch<K: Kind> {
    kind: K,
    namespace: NamespaceId,
    /// As of [`Call`].
    is_told: bool,
    items: Vec<Option<Item<K::What>>>,
    outcomes: Vec<Option<Result<K::Done, Error>>>,
    /// The fault that caused an item's retry.
    earlier: HashMap<usize, Fault>,
    /// Shrinks if a node's answer does not fit a message.
    limits: Limits,
}

/// The outcome of a request.
struct Reply<D> {
    items: Indices,
    peer: Arc<Peer>,
    outcome: Result<Vec<Outcome<D>>, Failure>,
}

/// What to resend.
#[derive(Default)]
struct Again {
    items: Indices,
    /// The reasons, one per item of `items`.
    failures: Vec<Failure>,
    /// Items whose answer was too long, to resend in smaller requests or after those that were
    /// answered.
    too_large: Indices,
    /// A node that knows of a newer topology.
    ahead: Option<Arc<Peer>>,
}

impl<K: Kind> Batch<K> {
    async fn run(
        client: &Client,
        kind: K,
        wanted: Vec<Result<K::What, Error>>,
    ) -> Result<Vec<Result<K::Done, Error>>, Error> {
        let mut call = client.call(K::NATURE);
        let place = client.place(&mut call).await?;
        let mut batch = Self {
            kind,
            namespace: place.namespace,
            is_told: call.is_told,
            items: Vec::with_capacity(wanted.len()),
            outcomes: Vec::with_capacity(wanted.len()),
            earlier: HashMap::new(),
            limits: Limits {
                items: MAX_BATCH_ITEMS,
                bytes: CHUNK_BYTES,
            },
        };
        for what in wanted {
            let (item, outcome) = match what {
                Ok(what) => {
                    let digest = place.digest(K::key(&what));
                    (Some(Item { digest, what }), None)
                }
                Err(refused) => (None, Some(Err(refused))),
            };
            batch.items.push(item);
            batch.outcomes.push(outcome);
        }
        for wave in batch.waves() {
            batch.complete(client, &mut call, wave).await?;
        }
        let missed = || Error::malformed("an item without an outcome", K::NATURE == Nature::Write);
        let outcomes = batch.outcomes.into_iter();
        Ok(outcomes
            .map(|outcome| outcome.unwrap_or_else(|| Err(missed())))
            .collect())
    }

    /// Only writes to one key need an order.
    fn waves(&self) -> Vec<Indices> {
        let numbered = self.items.iter().enumerate();
        let sound = numbered.filter_map(|(index, item)| Some((index, item.as_ref()?)));
        match K::NATURE {
            Nature::Read => vec![sound.map(|(index, _)| index).collect()],
            Nature::Repeatable | Nature::Write => {
                waves(sound.map(|(index, item)| (index, item.digest)))
            }
        }
    }

    /// Sends items until each has an outcome.
    async fn complete(
        &mut self,
        client: &Client,
        call: &mut Call<'_>,
        mut pending: Indices,
    ) -> Result<(), Error> {
        while !pending.is_empty() {
            let view = call.view().await?;
            if let Some(all) = self.begin_anew(client, &view) {
                pending = all;
            }
            let (targets, chunks) = self.cut(client, &view, call, &pending)?;
            let attempt_timeout = call.attempt_timeout();
            let requests: Vec<_> = chunks
                .into_iter()
                .map(|chunk| {
                    self.send(
                        &view,
                        &targets[chunk.destination],
                        chunk.items,
                        (call.deadline(), attempt_timeout),
                    )
                })
                .collect();
            let replies: Vec<_> = stream::iter(requests)
                .buffer_unordered(IN_FLIGHT)
                .collect()
                .await;
            let mut again = Again::default();
            for reply in replies {
                self.take(reply, call, &mut again);
            }
            pending = again.items;
            if !again.failures.is_empty() {
                let ahead = again.ahead.as_ref();
                let goes_on = call.pause(&again.failures, Some(&view), ahead).await;
                let faults = again.failures.into_iter().map(|failure| failure.fault);
                if goes_on {
                    self.earlier.extend(pending.iter().copied().zip(faults));
                } else {
                    for (index, fault) in pending.drain(..).zip(faults) {
                        let fault = blame(fault, self.earlier.remove(&index), K::NATURE);
                        self.outcomes[index] = Some(Err(call.given_up(fault)));
                    }
                }
            }
            pending.extend(again.too_large);
            pending.sort_unstable();
        }
        Ok(())
    }

    /// If the namespace has another id since the start of the batch, another generation is current, or it
    /// was dropped and created again. Then digests are others. Returns all gets, because a batch sees one
    /// generation.
    fn begin_anew(&mut self, client: &Client, view: &View) -> Option<Indices> {
        let now = view.table.namespace_id(&client.namespace_name())?;
        if now == self.namespace {
            return None;
        }
        self.namespace = now;
        let is_read = K::NATURE == Nature::Read;
        let mut all = Indices::new();
        for (index, item) in self.items.iter_mut().enumerate() {
            let is_open = is_read || self.outcomes[index].is_none();
            if let Some(item) = item.as_mut().filter(|_| is_open) {
                item.digest = view.table.digest(now, K::key(&item.what));
                self.outcomes[index] = None;
                all.push(index);
            }
        }
        is_read.then_some(all)
    }

    /// Cuts items into requests. Destinations are indices into the targets.
    fn cut(
        &self,
        client: &Client,
        view: &View,
        call: &Call<'_>,
        pending: &[usize],
    ) -> Result<(Vec<Target>, Vec<Chunk<usize>>), Error> {
        let core = client.core();
        let mut targets: Vec<Target> = Vec::new();
        let mut by_partition: HashMap<_, Destinations> = HashMap::new();
        let mut able: BTreeMap<Destinations, Indices> = BTreeMap::new();
        let goes_anywhere = Self::goes_anywhere(client, view);
        for &index in pending {
            let Some(item) = &self.items[index] else {
                continue;
            };
            let partition = self.partition_of(view, &item.digest);
            let state = view.state(partition)?;
            let destinations = match self.turn(client, view, call, &item.digest) {
                Some(target) => vec![add(&mut targets, target)],
                None => by_partition
                    .entry(partition)
                    .or_insert_with(|| {
                        let tries = (call.detours(), call.attempts());
                        let able = if goes_anywhere {
                            core.able(view, state, tries)
                        } else {
                            vec![core.first_target(view, state, K::NATURE, tries)]
                        };
                        let able = able.into_iter();
                        able.map(|target| add(&mut targets, target)).collect()
                    })
                    .clone(),
            };
            able.entry(destinations).or_default().push(index);
        }
        let routed = gather(able, targets.len(), core.next_turn()).into_iter();
        let routed = routed.filter_map(|(index, target)| {
            let item = self.items[index].as_ref()?;
            Some((index, target, self.kind.bytes(&item.what)))
        });
        Ok((targets, chunks(routed, self.limits)))
    }

    /// Whether any replica may carry out the items as well as their lead. Writes of one key through
    /// several nodes refuse each other. In eventual namespaces, the lead is likely to have the writes
    /// that too few replicas have for every read to find them.
    fn goes_anywhere(client: &Client, view: &View) -> bool {
        let namespace = view.table.namespaces.get(&client.namespace_name());
        let is_eventual = namespace.is_some_and(|it| it.mode == NamespaceMode::Eventual);
        K::NATURE == Nature::Read && !is_eventual
    }

    fn partition_of(&self, view: &View, digest: &Digest) -> Partition {
        view.table.partition_of(self.namespace, digest)
    }

    /// Where to send the get of a hot key first.
    fn turn(
        &self,
        client: &Client,
        view: &View,
        call: &Call<'_>,
        digest: &Digest,
    ) -> Option<Target> {
        let is_first = call.detours() == 0 && call.attempts() == 0;
        let core = client.core();
        let is_meant = K::NATURE == Nature::Read && is_first && core.hot().is_hot(digest);
        let state = view.table.state(self.partition_of(view, digest))?;
        is_meant.then(|| core.next_replica(view, state))?
    }

    async fn send(
        &self,
        view: &View,
        target: &Target,
        items: Indices,
        (deadline, attempt_timeout): (Instant, AttemptTimeout),
    ) -> Reply<K::Done> {
        let wire = |index: &usize| {
            let item = self.items[*index].as_ref()?;
            if !self.is_told {
                return Some(self.kind.wire(&item.what, Bytes::new(), None));
            }
            let route = target.route(view, self.partition_of(view, &item.digest));
            let digest = digest_to_wire(&item.digest);
            Some(self.kind.wire(&item.what, digest, route))
        };
        let wires = items.iter().filter_map(wire).collect();
        let sending = |channel, budget| self.kind.send(channel, budget, wires);
        let outcome = attempt_with_timeout(&target.peer, deadline, attempt_timeout, sending).await;
        Reply {
            items,
            peer: Arc::clone(&target.peer),
            outcome,
        }
    }

    /// Sorts a reply into outcomes and items to resend.
    fn take(&mut self, reply: Reply<K::Done>, call: &Call<'_>, again: &mut Again) {
        let count = reply.items.len();
        match reply.outcome {
            Ok(outcomes) if outcomes.len() == count => {
                let is_answered = outcomes.iter().any(Result::is_ok);
                for (index, outcome) in reply.items.into_iter().zip(outcomes) {
                    match outcome {
                        Ok(done) => self.outcomes[index] = Some(done),
                        Err(fault)
                            if is_answered && K::NATURE == Nature::Read && is_full(&fault) =>
                        {
                            again.too_large.push(index);
                        }
                        Err(fault) => {
                            self.failed(index, Failure::sent(fault), &reply.peer, call, again);
                        }
                    }
                }
            }
            Ok(outcomes) => {
                let what = format!("{} outcomes for {count} items", outcomes.len());
                let error = Error::malformed(what, K::NATURE == Nature::Write);
                for index in reply.items {
                    self.outcomes[index] = Some(Err(error.clone()));
                }
            }
            Err(failure) if failure.stop == Stop::TooLarge && count > 1 => {
                self.limits.items = self.limits.items.min(count / 2);
                again.too_large.extend(reply.items);
            }
            Err(failure) => {
                for index in reply.items {
                    self.failed(index, failure.clone(), &reply.peer, call, again);
                }
            }
        }
    }

    fn failed(
        &mut self,
        index: usize,
        failure: Failure,
        peer: &Arc<Peer>,
        call: &Call<'_>,
        again: &mut Again,
    ) {
        if !failure.may_retry(K::NATURE) {
            let fault = blame(failure.fault, self.earlier.remove(&index), K::NATURE);
            self.outcomes[index] = Some(Err(call.error(fault)));
            return;
        }
        if failure.fault.reason == Reason::StaleEpoch {
            again.ahead.get_or_insert_with(|| Arc::clone(peer));
        }
        again.items.push(index);
        again.failures.push(failure);
    }
}

/// Whether the node left the item out because its answer is full. A node at a load limit advises to
/// wait.
fn is_full(fault: &Fault) -> bool {
    fault.reason == Reason::Overloaded && fault.retry_after.is_none()
}

/// The index of a target; adds it if necessary.
fn add(targets: &mut Vec<Target>, target: Target) -> usize {
    let same = targets.iter().position(|known| known.is_same(&target));
    same.unwrap_or_else(|| {
        targets.push(target);
        targets.len() - 1
    })
}

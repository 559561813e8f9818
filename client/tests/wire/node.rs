//! A small correct node: records in memory, the epoch fence, forwarding. Each requested fault
//! occurs once.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use futures::future::pending;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::Semaphore;
use tonic::{Response, Status};
use torc_client::{NodeId, NodeSlot, RoutingTable, Version};
use torc_proto::{
    Fault, Reason, ScanPosition, TraceContext, v1, version_from_wire, version_to_wire,
};
use torc_record::{Digest, HybridTime, NamespaceId};
use torc_ring::Partition;

use crate::proxy::Proxy;

/// A fault to inject.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// Answer with this.
    Fault(Fault),
    /// Never answer.
    Stall,
    /// Cut all connections instead of carrying the operation out.
    CutBefore,
    /// Carry the operation out, then cut all connections instead of answering.
    CutAfter,
    /// Carry the operation out, and answer when there is a permit.
    Late(Arc<Semaphore>),
    /// For a scan: break off after this many messages.
    BreakOff(usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    value: Bytes,
    version: Version,
    expires_at_ms: u64,
}

/// A key as a scan orders it.
type Place = (Digest, Bytes);

/// Records per page of a scan.
const PAGE: usize = 2;

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) proxy: Proxy,
    /// `None` if it belongs to no cluster (yet).
    table: Mutex<Option<RoutingTable>>,
    records: Mutex<BTreeMap<Place, Stored>>,
    siblings: OnceLock<Vec<Weak<Node>>>,
    /// Whether its siblings reach it.
    up: AtomicBool,
    /// Whether every key is hot here.
    hot: AtomicBool,
    time: AtomicU64,
    troubles: Mutex<HashMap<&'static str, VecDeque<Trouble>>>,
    refusals: Mutex<HashMap<Bytes, VecDeque<Fault>>>,
    seen: Mutex<HashMap<&'static str, usize>>,
    /// The spans that operations and batches belonged to.
    pub(crate) traces: Mutex<Vec<Option<TraceContext>>>,
    /// Asks clients to open new sessions and to leave the present ones.
    pub(crate) farewell: tokio::sync::Notify,
    /// Stops reading from its open sessions and ends them.
    pub(crate) closing: tokio::sync::Notify,
}

/// Setup and observation.
impl Node {
    pub(crate) fn new(id: NodeId, proxy: Proxy) -> Arc<Self> {
        Arc::new(Self {
            id,
            proxy,
            table: Mutex::default(),
            records: Mutex::default(),
            siblings: OnceLock::new(),
            up: AtomicBool::new(true),
            hot: AtomicBool::new(false),
            time: AtomicU64::new(1),
            troubles: Mutex::default(),
            refusals: Mutex::default(),
            seen: Mutex::default(),
            traces: Mutex::default(),
            farewell: tokio::sync::Notify::new(),
            closing: tokio::sync::Notify::new(),
        })
    }

    pub(crate) fn meet(&self, nodes: &[Arc<Self>]) {
        let siblings = nodes.iter().map(Arc::downgrade).collect();
        assert!(self.siblings.set(siblings).is_ok());
    }

    pub(crate) fn adopt(&self, table: RoutingTable) {
        *self.table.lock().unwrap() = Some(table);
    }

    /// Sets whether its siblings reach it.
    pub(crate) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::SeqCst);
    }

    /// From now on, all its answers report their keys as hot.
    pub(crate) fn set_hot(&self) {
        self.hot.store(true, Ordering::SeqCst);
    }

    /// Makes the next operation of this name go wrong.
    pub(crate) fn trouble(&self, operation: &'static str, trouble: Trouble) {
        let mut troubles = self.troubles.lock().unwrap();
        troubles.entry(operation).or_default().push_back(trouble);
    }

    /// Makes the next operation on this key fail.
    pub(crate) fn refuse(&self, key: &Bytes, fault: Fault) {
        let mut refusals = self.refusals.lock().unwrap();
        refusals.entry(key.clone()).or_default().push_back(fault);
    }

    /// The number of operations of this name that have arrived. `routed` and `forwarded` count
    /// operations on keys with and without a route.
    pub(crate) fn seen(&self, operation: &'static str) -> usize {
        self.seen
            .lock()
            .unwrap()
            .get(operation)
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn count(&self, operation: &'static str) {
        *self.seen.lock().unwrap().entry(operation).or_default() += 1;
    }

    /// Removes and returns the records of a partition.
    pub(crate) fn hand_over(&self, partition: Partition) -> Vec<(Place, Stored)> {
        let table = self.table().unwrap();
        let mut records = self.records.lock().unwrap();
        let (moved, kept) =
            std::mem::take(&mut *records)
                .into_iter()
                .partition(|((digest, _), _)| {
                    table.partition_of(NamespaceId::DEFAULT, digest) == partition
                });
        *records = kept;
        let moved: BTreeMap<_, _> = moved;
        moved.into_iter().collect()
    }

    pub(crate) fn take_over(&self, moved: Vec<(Place, Stored)>) {
        self.records.lock().unwrap().extend(moved);
    }

    fn sibling(&self, id: NodeId) -> Result<Arc<Self>, Fault> {
        let siblings = self
            .siblings
            .get()
            .unwrap()
            .iter()
            .filter_map(Weak::upgrade);
        let found = siblings.into_iter().find(|node| node.id == id);
        let unreachable = || {
            let message = format!("node {id}, which serves the key, cannot be reached");
            Fault::new(Reason::OwnerUnreachable, message)
        };
        found
            .filter(|node| node.up.load(Ordering::SeqCst))
            .ok_or_else(unreachable)
    }

    pub(crate) fn table(&self) -> Result<RoutingTable, Fault> {
        let not_serving = || Fault::new(Reason::NotServing, "the node belongs to no cluster");
        self.table.lock().unwrap().clone().ok_or_else(not_serving)
    }
}

/// Serving.
impl Node {
    /// Runs an operation, or injects the requested fault.
    pub(crate) async fn serve<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<Response<T>, Status> {
        self.count(operation);
        let trouble = self
            .troubles
            .lock()
            .unwrap()
            .get_mut(operation)
            .and_then(VecDeque::pop_front);
        match trouble {
            None => Ok(Response::new(work()?)),
            Some(Trouble::Fault(fault)) => Err(fault.into()),
            Some(Trouble::Stall) => pending().await,
            Some(Trouble::CutBefore) => {
                self.proxy.cut();
                pending().await
            }
            Some(Trouble::CutAfter) => {
                work()?;
                self.proxy.cut();
                pending().await
            }
            Some(Trouble::Late(permits)) => {
                let done = work();
                permits.acquire().await.unwrap().forget();
                Ok(Response::new(done?))
            }
            Some(Trouble::BreakOff(_)) => panic!("only scans break off"),
        }
    }

    /// The node that runs an operation on a key: this node, or the lead if the operation came
    /// without a route.
    fn lead_of(
        &self,
        namespace: &str,
        key: &Bytes,
        digest: &[u8],
        route: Option<v1::Route>,
    ) -> Result<(Arc<Self>, Digest, Version), Fault> {
        let table = self.table()?;
        let namespace = table.namespace_id(namespace);
        let nowhere = || Fault::new(Reason::NoSuchNamespace, "no such namespace");
        let expected = Digest::of(&table.digest_key, namespace.ok_or_else(nowhere)?, key);
        assert_eq!(digest, expected.0, "the digest came along and is right");
        let partition = table.partition_of(namespace.unwrap(), &expected);
        let state = table.state(partition).unwrap();
        if let Some(route) = route {
            self.count("routed");
            assert_eq!(route.partition, partition.0);
            if route.epoch != state.config.epoch.0 || state.lead != self.id {
                let stale = Fault::new(Reason::StaleEpoch, "the partition moved on");
                return Err(stale.at(state.config.epoch));
            }
        } else {
            self.count("forwarded");
        }
        let lead = self.sibling(state.lead)?;
        let refusal = lead
            .refusals
            .lock()
            .unwrap()
            .get_mut(key)
            .and_then(VecDeque::pop_front);
        if let Some(fault) = refusal {
            return Err(fault);
        }
        let version = Version {
            epoch: state.config.epoch,
            time: HybridTime(lead.time.fetch_add(1, Ordering::SeqCst)),
            slot: NodeSlot(lead.id.0 as u16),
        };
        Ok((lead, expected, version))
    }

    pub(crate) fn get(&self, request: &v1::GetRequest) -> Result<v1::GetResponse, Fault> {
        let v1::GetRequest {
            namespace,
            key,
            digest,
            route,
            ..
        } = request;
        let (lead, digest, _) = self.lead_of(namespace, key, digest, *route)?;
        let records = lead.records.lock().unwrap();
        Ok(match records.get(&(digest, key.clone())) {
            Some(stored) => v1::GetResponse {
                found: true,
                value: stored.value.clone(),
                version: Some(version_to_wire(stored.version)),
                expires_at_ms: stored.expires_at_ms,
                hot: self.hot.load(Ordering::SeqCst),
                fingerprint_bits: 0,
            },
            None => v1::GetResponse::default(),
        })
    }

    pub(crate) fn put(&self, request: &v1::PutRequest) -> Result<v1::PutResponse, Fault> {
        let v1::PutRequest {
            namespace,
            key,
            digest,
            route,
            ..
        } = request;
        let (lead, digest, version) = self.lead_of(namespace, key, digest, *route)?;
        let mut records = lead.records.lock().unwrap();
        let place = (digest, key.clone());
        check(records.get(&place), request.condition.as_ref())?;
        let stored = Stored {
            value: request.value.clone(),
            version,
            expires_at_ms: request.ttl_ms.max(request.expires_at_ms),
        };
        records.insert(place, stored);
        let version = Some(version_to_wire(version));
        Ok(v1::PutResponse { version })
    }

    pub(crate) fn delete(&self, request: &v1::DeleteRequest) -> Result<v1::DeleteResponse, Fault> {
        let v1::DeleteRequest {
            namespace,
            key,
            digest,
            route,
            condition,
            ..
        } = request;
        let (lead, digest, version) = self.lead_of(namespace, key, digest, *route)?;
        let mut records = lead.records.lock().unwrap();
        let place = (digest, key.clone());
        check(records.get(&place), condition.as_ref())?;
        Ok(v1::DeleteResponse {
            existed: records.remove(&place).is_some(),
            version: Some(version_to_wire(version)),
        })
    }

    /// A scan that reads every page only when it sends it.
    pub(crate) fn scan(
        self: &Arc<Self>,
        request: &v1::ScanRequest,
    ) -> Result<BoxStream<'static, Result<v1::ScanResponse, Status>>, Status> {
        self.count("scan");
        self.count(if request.local { "routed" } else { "forwarded" });
        let trouble = self
            .troubles
            .lock()
            .unwrap()
            .get_mut("scan")
            .and_then(VecDeque::pop_front);
        let messages = match trouble {
            None => usize::MAX,
            Some(Trouble::BreakOff(messages)) => messages,
            Some(Trouble::Fault(fault)) => return Err(fault.into()),
            Some(other) => panic!("no scan does {other:?}"),
        };
        let reading = Reading {
            node: Arc::clone(self),
            position: ScanPosition::from_bytes(&request.after).map_err(Fault::from)?,
            left: match request.limit {
                0 => usize::MAX,
                limit => limit as usize,
            },
            local: request.local,
            keys_only: request.keys_only,
            ended: false,
        };
        let pages = stream::unfold(reading, async |mut reading: Reading| {
            let page = reading.page()?;
            Some((page.map_err(Status::from), reading))
        });
        let broken = stream::iter([Err(Status::unavailable("the connection broke"))]);
        Ok(if messages == usize::MAX {
            pages.boxed()
        } else {
            pages.take(messages).chain(broken).boxed()
        })
    }
}

fn check(stored: Option<&Stored>, condition: Option<&v1::Condition>) -> Result<(), Fault> {
    let met = match condition.and_then(|condition| condition.kind) {
        None => true,
        Some(v1::condition::Kind::IfAbsent(_)) => stored.is_none(),
        Some(v1::condition::Kind::IfVersion(wanted)) => {
            let wanted = version_from_wire(&wanted)?;
            stored.is_some_and(|stored| stored.version == wanted)
        }
        Some(v1::condition::Kind::IfOlderThan(bound)) => {
            let bound = version_from_wire(&bound)?;
            stored.is_none_or(|stored| stored.version < bound)
        }
    };
    let unmet = || Fault::new(Reason::ConditionNotMet, "the condition does not hold");
    met.then_some(()).ok_or_else(unmet)
}

/// A running scan at a node.
struct Reading {
    node: Arc<Node>,
    position: ScanPosition,
    left: usize,
    local: bool,
    keys_only: bool,
    ended: bool,
}

impl Reading {
    fn page(&mut self) -> Option<Result<v1::ScanResponse, Fault>> {
        if self.ended {
            return None;
        }
        Some(self.read().inspect_err(|_| self.ended = true))
    }

    fn read(&mut self) -> Result<v1::ScanResponse, Fault> {
        let table = self.node.table()?;
        let partition = table.partitions.of(self.position.token());
        let lead = table.state(partition).unwrap().lead;
        if self.local && lead != self.node.id {
            self.ended = true;
            return Ok(self.message(Vec::new(), false));
        }
        let lead = self.node.sibling(lead)?;
        let records = lead.records.lock().unwrap();
        let here = records.iter().filter(|((digest, key), _)| {
            let behind = match &self.position {
                ScanPosition::At(_) => true,
                ScanPosition::After { digest: d, key: k } => (digest, &key[..]) > (d, k.as_bytes()),
            };
            table.partition_of(NamespaceId::DEFAULT, digest) == partition && behind
        });
        let page: Vec<_> = here.take(PAGE.min(self.left)).collect();
        let entries: Vec<_> = page
            .iter()
            .map(|(place, stored)| self.entry(place, stored))
            .collect();
        self.left -= entries.len();
        self.ended = self.left == 0;
        if let Some(((digest, key), _)) = page.last() {
            let key = torc_record::Key::new(key.clone()).unwrap();
            let digest = *digest;
            self.position = ScanPosition::After { digest, key };
        } else {
            match table.partitions.end(partition).0.checked_add(1) {
                Some(next) => self.position = ScanPosition::At(torc_ring::Token(next)),
                None => self.ended = true,
            }
        }
        Ok(self.message(entries, self.ended))
    }

    fn entry(&self, (_, key): &Place, stored: &Stored) -> v1::Entry {
        let value = stored.value.clone();
        v1::Entry {
            key: key.clone(),
            value: if self.keys_only { Bytes::new() } else { value },
            version: Some(version_to_wire(stored.version)),
            expires_at_ms: stored.expires_at_ms,
            ..v1::Entry::default()
        }
    }

    fn message(&self, entries: Vec<v1::Entry>, done: bool) -> v1::ScanResponse {
        v1::ScanResponse {
            entries,
            cursor: self.position.to_bytes(),
            done,
        }
    }
}

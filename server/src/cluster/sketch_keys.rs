//! Sketches the keys of one or two namespaces, or a field of their JSON values, so a client can
//! estimate their overlap.
//!
//! The caller assigns each partition to one node, so each key of the cluster counts once. Sketches
//! of two namespaces are comparable, because a key enters them by a digest of its bytes alone,
//! without the namespace.
//!
//! The node reads its own replica, which may lack the latest writes. The result is not a snapshot.
//!
//! It works page by page on threads that serve no requests, for a few callers at a time, and stops
//! when the caller disconnects.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use torc_member::fault::{stale, store_fault};
use torc_member::peers::Recipient;
use torc_proto::v1::{KeySketch, SketchKeysRequest, SketchKeysResponse, SketchedNamespace};
use torc_proto::{Fault, MAX_KEY_WEIGHTS, Reason, WireError, digest_from_wire, find_namespace};
use torc_record::{Digest, DigestKey, Locator, NamespaceId, Record};
use torc_ring::topology::RoutingTable;
use torc_ring::{NodeId, Partition};
use torc_sketch::overlap::{KeySet, digest_of, seed_of};
use torc_store::{ScanLimits, ScanPage};
use torc_telemetry::clock::unix_ms;

use super::field::{Field, MAX_FIELD_LEN, Unjoined};
use super::node::ClusterNode;
use torc_limits::answers::{self, Stopped};

pub(crate) type SketchStream =
    Pin<Box<dyn Stream<Item = Result<SketchKeysResponse, Status>> + Send>>;

/// Namespaces in one request.
const MAX_NAMESPACES: usize = 2;
/// Bytes of the sketches of one namespace.
const SET_BYTES: usize = 5 << 20;
const PAGE: ScanLimits = ScanLimits {
    records: 1_000,
    bytes: 1 << 20,
};
/// Interval of progress messages to the caller.
const HEARD_EVERY: Duration = Duration::from_secs(1);

/// # Errors
/// The fault of the request. Later faults end the stream.
pub(super) async fn start(
    this: &Arc<ClusterNode>,
    request: SketchKeysRequest,
) -> Result<SketchStream, Fault> {
    let table = this.member.routing()?;
    let me = this.member.node()?;
    let node = NodeId(request.node);
    if node != me {
        return pass_on(this, &table, node, request).await;
    }
    let partitions = checked_partitions(&table, &request.partitions)?;
    let seed = seed_of(&table.digest_key);
    let place = this.kv.limits.classes.sketches.enter()?;
    let charge = this
        .kv
        .limits
        .budget
        .take(request.namespaces.len().min(MAX_NAMESPACES) * SET_BYTES)?;
    let sets = checked_namespaces(&table, &request.namespaces, seed)?;
    let sketching = Sketching {
        node: Arc::clone(this),
        digest_key: table.digest_key,
        sets,
        records: 0,
        heard: Instant::now(),
    };
    let (messages, last, receiver) = answers::channel(1);
    tokio::spawn(async move {
        let _held = (place, charge);
        answers::end(last, sketching.run(partitions, &messages).await);
    });
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// Forwards the request to another node, for a caller that cannot reach it.
async fn pass_on(
    this: &ClusterNode,
    table: &RoutingTable,
    node: NodeId,
    request: SketchKeysRequest,
) -> Result<SketchStream, Fault> {
    let recipient = Recipient::passed_on(table, node, request.passed_on)?;
    let address = recipient.address();
    let mut client = this.member.peers.cluster(&recipient)?;
    let passed_on = true;
    let asking = client.sketch_keys(SketchKeysRequest {
        passed_on,
        ..request
    });
    let unreached = |status: Status| {
        let fault = Fault::of_harmless(&status);
        Fault {
            message: format!("node {node} ({address}): {}", fault.message),
            ..fault
        }
    };
    let answer = asking.await.map_err(unreached)?.into_inner();
    let messages =
        answer.map(|message| message.map_err(|status| Fault::of_harmless(&status).into()));
    Ok(Box::pin(messages))
}

/// The requested partitions in ring order; duplicates are an error.
fn checked_partitions(table: &RoutingTable, wanted: &[u32]) -> Result<Vec<Partition>, Fault> {
    let mut partitions: Vec<Partition> = wanted.iter().copied().map(Partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    let is_known = |partition: &Partition| table.state(*partition).is_some();
    if partitions.len() != wanted.len() || !partitions.iter().all(is_known) {
        let message = "the request lists a partition that does not exist, or one twice";
        return Err(Fault::new(Reason::Invalid, message));
    }
    Ok(partitions)
}

/// What to sketch of one namespace.
struct Set {
    namespace: NamespaceId,
    weights: HashMap<Digest, u64>,
    /// The field to sketch instead of the keys.
    on: Option<Field>,
    keys: KeySet,
    not_json: u64,
    without_field: u64,
    not_scalar: u64,
}

impl Set {
    fn take(&mut self, digest_key: &DigestKey, record: &Record, value: &[u8]) {
        let Some(field) = &self.on else {
            let digest = digest_of(digest_key, record.key.as_bytes());
            let accesses = self.weights.get(&record.digest).copied();
            self.keys.insert(&digest, accesses.unwrap_or(0));
            return;
        };
        match field.of(value) {
            Ok(scalar) => self.keys.insert(&digest_of(digest_key, &scalar), 0),
            Err(Unjoined::NotJson) => self.not_json += 1,
            Err(Unjoined::NoField) => self.without_field += 1,
            Err(Unjoined::NotScalar) => self.not_scalar += 1,
        }
    }
}

fn checked_namespaces(
    table: &RoutingTable,
    wanted: &[SketchedNamespace],
    seed: u64,
) -> Result<Vec<Set>, Fault> {
    if wanted.is_empty() || wanted.len() > MAX_NAMESPACES {
        let message = format!("ask for sketches of 1 to {MAX_NAMESPACES} namespaces at a time");
        return Err(Fault::new(Reason::Invalid, message));
    }
    let set = |wanted: &SketchedNamespace| {
        if wanted.weights.len() > MAX_KEY_WEIGHTS {
            let message = format!("send weights of at most {MAX_KEY_WEIGHTS} keys");
            return Err(Fault::new(Reason::Invalid, message));
        }
        let weight = |weight: &torc_proto::v1::KeyWeight| {
            let digest = digest_from_wire(&weight.digest)?;
            let digest = digest.ok_or(WireError::Field { field: "digest" })?;
            Ok::<_, WireError>((digest, weight.accesses))
        };
        let namespace = find_namespace(table, &wanted.name)?;
        if namespace.is_generation() {
            let message =
                "static namespaces cannot be compared: compare the files they are built from";
            return Err(Fault::new(Reason::Invalid, message));
        }
        let on = Some(wanted.on.as_str()).filter(|on| !on.is_empty());
        let on = on.map(|on| {
            let too_long = || {
                let message = format!("a field's name has at most {MAX_FIELD_LEN} bytes");
                Fault::new(Reason::Invalid, message)
            };
            Field::new(on).ok_or_else(too_long)
        });
        Ok(Set {
            on: on.transpose()?,
            not_json: 0,
            without_field: 0,
            not_scalar: 0,
            namespace,
            weights: wanted
                .weights
                .iter()
                .map(weight)
                .collect::<Result<_, _>>()?,
            keys: KeySet::new(seed),
        })
    };
    wanted.iter().map(set).collect()
}

type Messages = answers::Messages<SketchKeysResponse>;

struct Sketching {
    node: Arc<ClusterNode>,
    digest_key: DigestKey,
    sets: Vec<Set>,
    records: u64,
    /// The time of the last message to the caller.
    heard: Instant,
}

impl Sketching {
    async fn run(mut self, partitions: Vec<Partition>, messages: &Messages) -> Result<(), Stopped> {
        let this = Arc::clone(&self.node);
        let mut turn = std::pin::pin!(this.kv.limits.sketch_permits.acquire());
        let _turn = loop {
            match tokio::time::timeout(HEARD_EVERY, &mut turn).await {
                Ok(turn) => break turn,
                Err(_) => self.tell(messages).await?,
            }
        };
        for partition in partitions {
            self.partition(partition, messages).await?;
        }
        for set in &self.sets {
            let [keys, accesses] = set.keys.encode().map(Into::into);
            let sketch = Some(KeySketch {
                keys,
                accesses,
                not_json: set.not_json,
                without_field: set.without_field,
                not_scalar: set.not_scalar,
            });
            let records = self.records;
            let message = SketchKeysResponse { records, sketch };
            answers::send(messages, message, this.kv.idle_time).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, messages: &Messages) -> Result<(), Stopped> {
        self.heard = Instant::now();
        let message = SketchKeysResponse {
            records: self.records,
            sketch: None,
        };
        answers::send(messages, message, self.node.kv.idle_time).await
    }

    async fn partition(
        &mut self,
        partition: Partition,
        messages: &Messages,
    ) -> Result<(), Stopped> {
        let mut after = None;
        loop {
            if messages.is_closed() {
                return Err(Stopped::Gone);
            }
            if self.heard.elapsed() >= HEARD_EVERY {
                self.tell(messages).await?;
            }
            let page = self.page(partition, after).await?;
            self.records += page.records.len() as u64;
            after = page.next.clone();
            let is_last = page.done || after.is_none();
            self.take(partition, page).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// The next records of a partition that this node serves.
    async fn page(&self, partition: Partition, after: Option<Locator>) -> Result<ScanPage, Fault> {
        let this = &self.node;
        let me = this.member.node()?;
        let config = this.member.registers()?.config(partition);
        let reads = |config: &torc_replication::Config| {
            config.nodes(config.readers()).any(|node| node == me)
        };
        if !config.as_deref().is_some_and(reads) {
            return Err(stale(partition, this.member.routing()?.epoch));
        }
        let store = this.kv.store.clone();
        let read = move || store.scan(partition, after.as_ref(), PAGE);
        let page = tokio::task::spawn_blocking(read).await;
        let page = page.map_err(|_| failed())?;
        page.map_err(|error| store_fault(&error))
    }

    /// Adds the records of a page that have a value. A value that some get has found expired has none.
    async fn take(&mut self, partition: Partition, page: ScanPage) -> Result<(), Fault> {
        let mut sets = std::mem::take(&mut self.sets);
        let digest_key = self.digest_key;
        let observed = self.node.kv.store.partition_meta(partition).collecting;
        let now_ms = unix_ms().max(observed.time.unix_ms());
        let adding = tokio::task::spawn_blocking(move || {
            for record in &page.records {
                let Some(value) = record.visible(now_ms) else {
                    continue;
                };
                let meant = |set: &&mut Set| set.namespace == record.namespace;
                let meant = sets.iter_mut().filter(meant);
                meant.for_each(|set| set.take(&digest_key, record, value));
            }
            sets
        });
        self.sets = adding.await.map_err(|_| failed())?;
        Ok(())
    }
}

fn failed() -> Fault {
    Fault::new(Reason::Internal, "sketching keys failed: report this")
}

//! Estimates the overlap of two namespaces: nodes sketch the keys of the partitions that they lead,
//! and the client adds up the sketches.
//!
//! Each partition is assigned to one node, so each key counts once. If a node fails, its partitions
//! go to other replicas, by the newest topology, until the deadline; nothing is left out silently.

#![expect(
    clippy::cast_possible_truncation,
    reason = "nodes and MAX_KEY_WEIGHTS are few"
)]

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _};
use tokio::time::{Instant, timeout_at};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::{Fault, MAX_KEY_WEIGHTS, MAX_MESSAGE_LEN, Reason, v1};
use torc_record::DigestKey;
use torc_ring::{NodeId, Partition};
use torc_sketch::CombineError;
use torc_sketch::overlap::{KeySet, KeySetError, seed_of};

use crate::call::digest_to_wire;
use crate::naming::Connection;
use crate::peer::Peer;
use crate::peer::attempt::{attempt, failure, no_answer};
use crate::retry::{Failure, Nature, Stop};
use crate::view::View;
use crate::{
    Client, Error, ErrorKind, FieldJoin, FieldJoinEstimate, FieldJoinSide, HotKeys, HotKeysOptions,
    Overlap, OverlapEstimate, OverlapJoin, OverlapOptions, OverlapSet,
};

/// Nodes that work at the same time.
const IN_FLIGHT: usize = 16;
const LONGEST_WINDOW: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Comparing namespaces.
impl Client {
    /// Estimates how many keys two namespaces share, and the join size of their accesses, with
    /// their errors ([`OverlapEstimate`], [`OverlapJoin`]).
    ///
    /// Every node reads all records of the partitions that it leads, once, in the background;
    /// another replica stands in for a node that fails. Each sends at most a few MiB, however many
    /// keys there are. The result is not a snapshot, and with several replicas a lead may lack the
    /// latest writes. Accesses are those of hot keys, at most the 1,000 hottest of each namespace.
    /// The deadline is the longest time without progress.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchNamespace`]; [`ErrorKind::Unavailable`] or [`ErrorKind::Deadline`] if the
    /// keys of some node are unavailable; [`ErrorKind::Invalid`] for a window beyond 24 hours.
    /// Unavailable accesses are not an error; [`Overlap::join_problem`] reports them.
    pub async fn overlap(
        &self,
        a: impl Into<String>,
        b: impl Into<String>,
        options: OverlapOptions,
    ) -> Result<Overlap, Error> {
        let clients = [self.namespace(a), self.namespace(b)];
        let mut call = self.call(Nature::Read);
        for client in &clients {
            client.place(&mut call).await?;
        }
        let hot = match hot_of(&clients, options).await {
            Ok(hot) => Ok(hot),
            Err(error) if error.kind() == ErrorKind::Invalid => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        let weighted = |at: usize| v1::SketchedNamespace {
            name: clients[at].namespace_name(),
            weights: hot.as_ref().map_or(Vec::new(), |hot| weights(&hot[at])),
            on: String::new(),
        };
        let gathering = Gathering::of(self, [weighted(0), weighted(1)]);
        let (gathered, sets) = gathering.run().await?;
        let sets = sets.map(|set| set.keys);
        let overlap = sets[0].overlap(&sets[1]).map_err(malformed)?;
        let set = |at: usize| OverlapSet {
            namespace: clients[at].namespace_name(),
            keys: sets[at].len(),
            accesses: sets[at].accesses(),
        };
        let [of_a, of_b] = &sets;
        let join = hot.as_ref().ok();
        let join = join.map(|[a, b]| OverlapJoin::of(&overlap, [of_a, of_b], [a, b]));
        Ok(Overlap {
            a: set(0),
            b: set(1),
            shared_keys: OverlapEstimate::of(&overlap),
            join,
            join_problem: hot.err(),
            nodes: gathered.nodes.len() as u32,
            records_read: gathered.records_read,
            bytes_moved: gathered.bytes_moved,
        })
    }
}

/// Joining namespaces.
impl Client {
    /// Estimates the join size of two namespaces on a field of their JSON values, that is, the
    /// number of pairs of records with the same value in it, with its error
    /// ([`FieldJoinEstimate`]).
    ///
    /// The field is a top-level name or a JSON pointer (RFC 6901), which starts with `/`. Strings
    /// are equal by their characters; numbers by their values (1, 1.0 and 1e0 are equal; beyond 64
    /// bits and with a fraction, as doubles); null, arrays and objects equal nothing. Records that
    /// cannot join are counted by reason.
    ///
    /// Costs as much as [`Client::overlap`], plus parsing every value.
    ///
    /// # Errors
    /// As [`Client::overlap`]; [`ErrorKind::Invalid`] for an empty field or one of more than 1,024
    /// bytes.
    pub async fn overlap_on(
        &self,
        a: impl Into<String>,
        b: impl Into<String>,
        on: impl Into<String>,
    ) -> Result<FieldJoin, Error> {
        let clients = [self.namespace(a), self.namespace(b)];
        let on = on.into();
        if on.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the field's name is empty"));
        }
        let mut call = self.call(Nature::Read);
        for client in &clients {
            client.place(&mut call).await?;
        }
        let sketched = |at: usize| v1::SketchedNamespace {
            name: clients[at].namespace_name(),
            weights: Vec::new(),
            on: on.clone(),
        };
        let gathering = Gathering::of(self, [sketched(0), sketched(1)]);
        let (gathered, sets) = gathering.run().await?;
        let join = sets[0].keys.join(&sets[1].keys).map_err(malformed)?;
        let [rows_a, rows_b] = [0, 1].map(|at| sets[at].keys.len());
        let side = |at: usize| FieldJoinSide {
            namespace: clients[at].namespace_name(),
            rows: sets[at].keys.len(),
            not_json: sets[at].not_json,
            without_field: sets[at].without_field,
            not_scalar: sets[at].not_scalar,
        };
        Ok(FieldJoin {
            a: side(0),
            b: side(1),
            on,
            size: FieldJoinEstimate::of(&join, rows_a, rows_b),
            nodes: gathered.nodes.len() as u32,
            records_read: gathered.records_read,
            bytes_moved: gathered.bytes_moved,
        })
    }
}

/// The hot keys of both namespaces, by all nodes.
async fn hot_of(clients: &[Client; 2], options: OverlapOptions) -> Result<[HotKeys; 2], Error> {
    let hot = async |client: &Client| {
        let wanted = HotKeysOptions {
            window: Some(options.window.unwrap_or(LONGEST_WINDOW)),
            top: Some(MAX_KEY_WEIGHTS as u32),
            ..HotKeysOptions::default()
        };
        let hot = client.hot_keys(wanted).await?;
        let missing = hot.nodes.iter().find_map(|node| {
            let problem = node.problem.as_ref()?;
            Some(format!(
                "node {} did not send its accesses: {problem}",
                node.node
            ))
        });
        match missing {
            Some(missing) => Err(Error::new(ErrorKind::Unavailable, missing)),
            None => Ok(hot),
        }
    };
    Ok([hot(&clients[0]).await?, hot(&clients[1]).await?])
}

fn weights(hot: &HotKeys) -> Vec<v1::KeyWeight> {
    let weight = |key: &crate::HotKey| v1::KeyWeight {
        digest: digest_to_wire(&key.digest),
        accesses: key.estimate,
    };
    hot.keys.iter().take(MAX_KEY_WEIGHTS).map(weight).collect()
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::malformed(error, false)
}

/// The sketches of one namespace.
struct Sketched {
    keys: KeySet,
    not_json: u64,
    without_field: u64,
    not_scalar: u64,
}

impl Sketched {
    fn merge(&mut self, other: &Self) -> Result<(), CombineError> {
        self.keys.merge(&other.keys)?;
        self.not_json = self.not_json.saturating_add(other.not_json);
        self.without_field = self.without_field.saturating_add(other.without_field);
        self.not_scalar = self.not_scalar.saturating_add(other.not_scalar);
        Ok(())
    }
}

type Sets = [Sketched; 2];

/// One node's answer.
struct Part {
    sets: Sets,
    records: u64,
    bytes: u64,
}

/// The sketches received so far.
struct Gathering<'a> {
    client: &'a Client,
    namespaces: Vec<v1::SketchedNamespace>,
    sets: Option<Sets>,
    nodes: Vec<NodeId>,
    records_read: u64,
    bytes_moved: u64,
}

impl<'a> Gathering<'a> {
    fn of(client: &'a Client, namespaces: [v1::SketchedNamespace; 2]) -> Self {
        Self {
            client,
            namespaces: namespaces.into(),
            sets: None,
            nodes: Vec::new(),
            records_read: 0,
            bytes_moved: 0,
        }
    }

    /// Asks until every partition has been counted.
    async fn run(mut self) -> Result<(Self, Sets), Error> {
        let client = self.client;
        let mut call = client.call(Nature::Read);
        let mut pending: Option<Vec<Partition>> = None;
        let mut failed = BTreeSet::new();
        loop {
            let view = call.view().await?;
            let table = &view.table;
            let all = || table.layers.partitions(table.partitions).collect();
            let wanted = pending.take().unwrap_or_else(all);
            let readers = by_reader(&view, wanted, &failed)?;
            let asking = readers.into_iter().map(|(node, partitions)| {
                let (this, view, attempts) = (&self, &view, call.attempts());
                async move {
                    let answer = this.ask(view, node, &partitions, attempts).await;
                    (node, partitions, answer)
                }
            });
            let asking: Vec<_> = asking.collect();
            let answers: Vec<_> = stream::iter(asking)
                .buffer_unordered(IN_FLIGHT)
                .collect()
                .await;
            let (mut again, mut failures) = (Vec::new(), Vec::new());
            for (node, partitions, answer) in answers {
                match answer {
                    Ok(part) => {
                        self.take(node, part)?;
                        call = client.call(Nature::Read);
                    }
                    Err(failure) if failure.may_retry(Nature::Read) => {
                        again.extend(partitions);
                        if failure.is_of_the_node() || failure.stop == Stop::Connecting {
                            failed.insert(node);
                        }
                        failures.push(failure);
                    }
                    Err(failure) => return Err(call.error(failure.fault)),
                }
            }
            if failures.is_empty() {
                let sets = self.sets.take();
                let sets = sets.ok_or_else(|| malformed("a cluster without partitions"))?;
                return Ok((self, sets));
            }
            if !call.pause(&failures, Some(&view), None).await {
                return Err(call.given_up(failures.swap_remove(0).fault));
            }
            pending = Some(again);
        }
    }

    fn take(&mut self, node: NodeId, part: Part) -> Result<(), Error> {
        match &mut self.sets {
            Some(sets) => {
                for (sum, set) in sets.iter_mut().zip(&part.sets) {
                    sum.merge(set).map_err(malformed)?;
                }
            }
            None => self.sets = Some(part.sets),
        }
        if !self.nodes.contains(&node) {
            self.nodes.push(node);
        }
        self.records_read += part.records;
        self.bytes_moved += part.bytes;
        Ok(())
    }

    /// Asks the lead of some partitions for their keys.
    async fn ask(
        &self,
        view: &View,
        node: NodeId,
        partitions: &[Partition],
        attempts: usize,
    ) -> Result<Part, Failure> {
        let message = v1::SketchKeysRequest {
            node: node.0,
            passed_on: false,
            partitions: partitions.iter().map(|partition| partition.0).collect(),
            namespaces: self.namespaces.clone(),
        };
        let sent = self.namespaces.iter().flat_map(|it| &it.weights);
        let mut bytes: u64 = sent.map(|it| it.digest.len() as u64 + 8).sum();
        let peer = self.client.core().towards(view, node, attempts);
        let silence = self.client.deadline();
        let sending = |channel: Connection, _| async move {
            ClusterClient::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_LEN)
                .sketch_keys(message)
                .await
        };
        let opening = attempt(&peer, Instant::now() + silence, sending);
        let mut messages = opening.await?;
        let (mut sets, mut records) = (Vec::new(), 0);
        while sets.len() < self.namespaces.len() {
            let message = timeout_at(Instant::now() + silence, messages.message()).await;
            let message = message.map_err(|_| no_answer(&peer))?;
            let message = message.map_err(|status| failure(&peer, &status))?;
            let message = message.ok_or_else(|| cut_short(&peer))?;
            records = message.records;
            if let Some(sketch) = message.sketch {
                bytes += (sketch.keys.len() + sketch.accesses.len()) as u64;
                sets.push(decode(sketch, view.table.digest_key).await?);
            }
        }
        let sets = Sets::try_from(sets).map_err(|_| cut_short(&peer))?;
        Ok(Part {
            sets,
            records,
            bytes,
        })
    }
}

/// Assigns each partition to a reader: its lead, or another replica if the lead has failed; if all
/// have failed, the lead again.
fn by_reader(
    view: &View,
    partitions: Vec<Partition>,
    failed: &BTreeSet<NodeId>,
) -> Result<BTreeMap<NodeId, Vec<Partition>>, Error> {
    let mut readers: BTreeMap<NodeId, Vec<Partition>> = BTreeMap::new();
    for partition in partitions {
        let state = view.state(partition)?;
        let replicas = [state.lead].into_iter().chain(state.nodes.iter().copied());
        let reader = replicas.into_iter().find(|node| !failed.contains(node));
        let reader = reader.unwrap_or(state.lead);
        readers.entry(reader).or_default().push(partition);
    }
    Ok(readers)
}

async fn decode(sketch: v1::KeySketch, digest_key: DigestKey) -> Result<Sketched, Failure> {
    let decoding = tokio::task::spawn_blocking(move || {
        let keys = [&sketch.keys[..], &sketch.accesses];
        Ok::<_, KeySetError>(Sketched {
            keys: KeySet::decode(keys, seed_of(&digest_key))?,
            not_json: sketch.not_json,
            without_field: sketch.without_field,
            not_scalar: sketch.not_scalar,
        })
    });
    let decoded = decoding.await;
    let damaged = |what: String| Failure::sent(Fault::new(Reason::Internal, what));
    let decoded = decoded.map_err(|_| damaged("reading a sketch failed: report this".into()))?;
    decoded.map_err(|error| damaged(format!("a node's sketch of its keys: {error}")))
}

fn cut_short(peer: &Peer) -> Failure {
    let message = format!("{peer} ended its answer too early");
    Failure::sent(Fault::new(Reason::OwnerUnreachable, message))
}

//! Read-modify-writes: get with the version, compute, put or delete conditionally on that version,
//! and restart if it has changed.
//!
//! Only one task of this node at a time writes a key; commands of other connections on the same key
//! wait in its *line*. The task takes all waiting commands, applies them one after another, and
//! writes the result once. This is linearizable: all of them are in progress from before the read
//! until after the write, so all may take effect at the moment of the write. If another node writes
//! the key meanwhile, the write fails, and the task restarts with the commands that have arrived
//! since.
//!
//! An answer says that a write happened, that nothing was changed, or that the outcome is unknown.
//! The task never repeats a write of unknown outcome.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::oneshot;
use torc_proto::v1::condition::Kind;
use torc_proto::v1::{DeleteRequest, GetResponse, PutRequest};
use torc_proto::{Fault, Reason};
use torc_record::MAX_VALUE_LEN;
use torc_resp::{KeyOp, KeyState, Reply};
use torc_ring::topology::{Namespace, NamespaceMode, ReadGenerations};

use super::burst::{Group, Place};
use super::requests::{apply, delete_of, get, get_all, put_of, state_of};
use crate::{Answers, Server};

/// Upper bound on the random pause after the first conflict, and after many.
const PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Commands of one connection on one key.
#[derive(Debug)]
struct Job {
    ops: Vec<KeyOp>,
    deadline: Instant,
    tell: oneshot::Sender<Answers>,
}

/// The keys that tasks are writing, each with the jobs that wait. Excludes the jobs being served.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<HashMap<Place, Vec<Job>>>);

/// A key, and the jobs that are served together.
struct Line {
    place: Place,
    jobs: Vec<Job>,
}

impl Lines {
    /// Adds jobs to their lines. Returns the lines that had no task, for the caller to serve.
    fn enter(&self, jobs: Vec<(Place, Job)>) -> Vec<Line> {
        let mut lines = self.0.lock();
        let mut led = Vec::new();
        for (place, job) in jobs {
            if let Some(waiting) = lines.get_mut(&place) {
                waiting.push(job);
            } else {
                lines.insert(place.clone(), Vec::new());
                let jobs = vec![job];
                led.push(Line { place, jobs });
            }
        }
        led
    }

    /// Takes the waiting jobs.
    fn join(&self, line: &mut Line) {
        if let Some(waiting) = self.0.lock().get_mut(&line.place) {
            line.jobs.append(waiting);
        }
    }

    /// Removes a line, unless jobs wait in it: then returns it with these jobs.
    fn leave(&self, place: Place) -> Option<Line> {
        let mut lines = self.0.lock();
        let jobs = lines
            .get_mut(&place)
            .map(std::mem::take)
            .unwrap_or_default();
        if jobs.is_empty() {
            lines.remove(&place);
            return None;
        }
        Some(Line { place, jobs })
    }
}

/// Lines that a task serves. Dropping it early removes the lines, so that no job waits for a dead
/// task.
struct Served {
    server: Arc<Server>,
    lines: Vec<Line>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut lines = self.server.lines.0.lock();
        for line in &self.lines {
            lines.remove(&line.place);
        }
    }
}

/// Runs groups; returns the answers with the groups' numbers.
pub(super) async fn all(
    server: &Arc<Server>,
    groups: Vec<(usize, Group)>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    if groups.is_empty() {
        return Vec::new();
    }
    let (mut jobs, mut told) = (Vec::new(), Vec::new());
    for (number, Group { place, ops }) in groups {
        let (tell, hear) = oneshot::channel();
        let job = Job {
            ops,
            deadline,
            tell,
        };
        jobs.push((place, job));
        told.push((number, hear));
    }
    let lines = server.lines.enter(jobs);
    if !lines.is_empty() {
        tokio::spawn(serve(Arc::clone(server), lines));
    }
    let mut answers = Vec::with_capacity(told.len());
    for (number, hear) in told {
        answers.push((number, hear.await.unwrap_or_else(|_| Err(interrupted()))));
    }
    answers
}

fn interrupted() -> Fault {
    Fault::unknown("the node stopped while it wrote the key: get the key before you retry")
}

/// Serves lines until no job waits in them.
async fn serve(server: Arc<Server>, lines: Vec<Line>) {
    let mut served = Served {
        server: Arc::clone(&server),
        lines,
    };
    let mut pause = PAUSE;
    loop {
        for line in &mut served.lines {
            server.lines.join(line);
        }
        round(&mut served).await;
        if served.lines.is_empty() {
            return;
        }
        let waits = rand::rng().random_range(Duration::ZERO..pause);
        tokio::time::sleep(waits).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The results of a line's commands.
struct Computed {
    line: Line,
    /// For each job, the replies of its commands.
    replies: Vec<Vec<Reply>>,
}

/// Reads, computes and writes each key once. The lines whose key has changed meanwhile remain.
async fn round(served: &mut Served) {
    let server = Arc::clone(&served.server);
    let latest = served.lines.iter().flat_map(|line| &line.jobs);
    let latest = latest.map(|job| job.deadline).max();
    let latest = latest.unwrap_or_else(Instant::now);
    let gets = served.lines.iter().map(|line| get(&server, &line.place));
    // Static namespaces have no part in this: they refuse writes.
    let generations = &mut ReadGenerations::default();
    let values = get_all(&server, gets.collect(), latest, generations).await;
    let (mut puts, mut put) = (Vec::new(), Vec::new());
    let (mut deletes, mut deleted) = (Vec::new(), Vec::new());
    // From here on this function owns the jobs: `served` keeps only the keys of the lines.
    let lines: Vec<_> = served.lines.iter_mut().map(Line::take_jobs).collect();
    for (line, value) in lines.into_iter().zip(values) {
        let value = match value {
            Ok(value) => value,
            Err(fault) => {
                finish(served, line, Err(fault));
                continue;
            }
        };
        let (computed, written) = compute(&server, line, value);
        match written {
            None => finish_with(served, computed),
            Some(Written::Put(request)) => {
                puts.push(*request);
                put.push(computed);
            }
            Some(Written::Delete(request)) => {
                deletes.push(*request);
                deleted.push(computed);
            }
        }
    }
    let (puts, deletes) = tokio::join!(
        server.node.put_all(&puts, latest),
        server.node.delete_all(&deletes, latest),
    );
    let outcomes = puts.into_iter().map(|it| it.map(|_| ()));
    let outcomes = outcomes.chain(deletes.into_iter().map(|it| it.map(|_| ())));
    for (computed, outcome) in put.into_iter().chain(deleted).zip(outcomes) {
        match outcome {
            Ok(()) => {
                let shared_it = computed.line.jobs.len().saturating_sub(1);
                server.metrics.combined.inc_by(shared_it as u64);
                finish_with(served, computed);
            }
            Err(fault) if fault.reason == Reason::ConditionNotMet && !fault.maybe_applied => {
                again(served, computed.line);
            }
            Err(fault) => finish(served, computed.line, Err(fault)),
        }
    }
}

impl Line {
    /// Moves the jobs out, into a line with the same key.
    fn take_jobs(&mut self) -> Self {
        Self {
            place: self.place.clone(),
            jobs: std::mem::take(&mut self.jobs),
        }
    }
}

enum Written {
    Put(Box<PutRequest>),
    Delete(Box<DeleteRequest>),
}

/// Applies a line's commands to the value read. Returns the write that they need, if any.
fn compute(server: &Server, line: Line, value: GetResponse) -> (Computed, Option<Written>) {
    let version = value.version;
    let mut state: KeyState = state_of(value);
    let was_there = state.entry.is_some();
    let replies = line.jobs.iter().map(|job| apply(&job.ops, &mut state));
    let replies = replies.collect();
    let condition = Some(version.map_or(Kind::IfAbsent(true), Kind::IfVersion));
    let mut ops = line.jobs.iter().flat_map(|job| &job.ops);
    // There, the last writer wins over what was read, and conditions are refused.
    let is_eventual = mode_of(server, &line.place) == Some(NamespaceMode::Eventual);
    let is_plain = |op: &KeyOp| op.is_read() || op.is_blind(MAX_VALUE_LEN) || *op == KeyOp::Del;
    let condition = condition.filter(|_| !(is_eventual && ops.clone().all(is_plain)));
    let deletes = ops.any(|op| matches!(op, KeyOp::Del | KeyOp::GetDel));
    let written = match state.entry {
        // Nothing to delete: but a record that is merged later must not take effect.
        None if !was_there && (deletes || state.is_changed) && is_merging(server, &line.place) => {
            let request = delete_of(server, &line.place, condition);
            Some(Written::Delete(Box::new(request)))
        }
        _ if !state.is_changed => None,
        // A command created the value and a later one deleted it.
        None if !was_there => None,
        None => {
            let request = delete_of(server, &line.place, condition);
            Some(Written::Delete(Box::new(request)))
        }
        Some(entry) => {
            let request = put_of(server, &line.place, entry, condition);
            Some(Written::Put(Box::new(request)))
        }
    };
    (Computed { line, replies }, written)
}

fn namespace_of(server: &Server, place: &Place) -> Option<Namespace> {
    let table = server.node.routing().ok()?;
    table.namespace(&server.namespace(place.database)).copied()
}

fn mode_of(server: &Server, place: &Place) -> Option<NamespaceMode> {
    namespace_of(server, place).map(|namespace| namespace.mode)
}

/// Whether a record that is merged may have this key.
fn is_merging(server: &Server, place: &Place) -> bool {
    let (Ok(table), Some(namespace)) = (server.node.routing(), namespace_of(server, place)) else {
        return false;
    };
    // Other modes share the partitions, and take no merges.
    if namespace.mode != NamespaceMode::Linearizable {
        return false;
    }
    let digest = table.digest(namespace.id, &place.key);
    let state = table.state(table.partition_of(namespace.id, &digest));
    state.is_some_and(|state| state.config.merging)
}

fn finish_with(served: &mut Served, computed: Computed) {
    let Computed { line, replies } = computed;
    finish(served, line, Ok(replies));
}

/// Sends a line's jobs their results. A new task serves the jobs that wait in the line.
fn finish(served: &mut Served, line: Line, outcome: Result<Vec<Vec<Reply>>, Fault>) {
    let Line { place, jobs } = line;
    match outcome {
        Ok(replies) => {
            for (job, replies) in jobs.into_iter().zip(replies) {
                // Fails if the job's connection is gone.
                let _ = job.tell.send(Ok(replies));
            }
        }
        Err(fault) => tell_all(jobs, &fault),
    }
    served.lines.retain(|line| line.place != place);
    if let Some(line) = served.server.lines.leave(place) {
        tokio::spawn(serve(Arc::clone(&served.server), vec![line]));
    }
}

fn tell_all(jobs: Vec<Job>, fault: &Fault) {
    for job in jobs {
        let _ = job.tell.send(Err(fault.clone()));
    }
}

/// Another node has written the key meanwhile: keeps the jobs for another round, except those past
/// their deadline.
fn again(served: &mut Served, line: Line) {
    served.server.metrics.conflicts.inc();
    let now = Instant::now();
    let (late, rest): (Vec<_>, Vec<_>) = line.jobs.into_iter().partition(|job| job.deadline <= now);
    let fault = Fault::new(
        Reason::ConditionNotMet,
        "other writes kept changing the key until the deadline, and nothing was \
         changed: retry",
    );
    tell_all(late, &fault);
    if rest.is_empty() {
        let jobs = rest;
        let place = line.place;
        return finish(served, Line { place, jobs }, Ok(Vec::new()));
    }
    let mut lines = served.lines.iter_mut();
    if let Some(kept) = lines.find(|kept| kept.place == line.place) {
        kept.jobs = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use futures::future::{BoxFuture, join_all};
    use futures::stream::BoxStream;
    use prometheus_client::registry::Registry;
    use tokio_util::sync::CancellationToken;
    use torc_access::caller::Caller;
    use torc_proto::v1::GetRequest;
    use torc_proto::v1::{DeleteResponse, PutResponse, ScanRequest, ScanResponse, Version};
    use torc_ring::NodeId;
    use torc_ring::topology::{ClusterId, Holder, Role, RoutingTable};

    use super::*;
    use crate::{Charge, Node, Options, RespMetrics};

    /// A node with one map, some of whose puts fail: `faults` says which, by their number.
    struct Map {
        values: Mutex<BTreeMap<Bytes, (Bytes, u64)>>,
        puts: AtomicU64,
        faults: fn(u64) -> Option<Fault>,
    }

    impl Map {
        fn server(faults: fn(u64) -> Option<Fault>) -> (Arc<Self>, Arc<Server>) {
            let map = Arc::new(Self {
                values: Mutex::default(),
                puts: AtomicU64::new(0),
                faults,
            });
            let options = Options {
                address: "127.0.0.1:7463".to_owned(),
                databases: BTreeMap::new(),
                max_connections: 10,
                idle_time: Duration::from_secs(60),
                deadline: Duration::from_secs(60),
                version: "0".to_owned(),
            };
            let metrics = Arc::new(RespMetrics::register(&mut Registry::default()));
            let node = Arc::<Self>::clone(&map);
            let server = Server::new(options, node, metrics, CancellationToken::new());
            (map, server)
        }

        fn put(&self, put: &PutRequest) -> Result<PutResponse, Fault> {
            let number = self.puts.fetch_add(1, Ordering::SeqCst) + 1;
            if let Some(fault) = (self.faults)(number) {
                return Err(fault);
            }
            let mut values = self.values.lock();
            let now = values.get(&put.key).map(|(_, version)| *version);
            let holds = match put.condition.as_ref().and_then(|it| it.kind.as_ref()) {
                None => true,
                Some(Kind::IfAbsent(_)) => now.is_none(),
                Some(Kind::IfVersion(version)) => now == Some(version.time),
                Some(Kind::IfOlderThan(_)) => panic!("no command has this condition"),
            };
            if !holds {
                return Err(Fault::new(Reason::ConditionNotMet, "changed"));
            }
            values.insert(put.key.clone(), (put.value.clone(), number));
            Ok(PutResponse::default())
        }
    }

    fn nowhere() -> Fault {
        Fault::new(Reason::NotServing, "a map has no topology")
    }

    impl Node for Map {
        fn id(&self) -> Result<NodeId, Fault> {
            Err(nowhere())
        }

        fn cluster(&self) -> Option<ClusterId> {
            None
        }

        fn routing(&self) -> Result<Arc<RoutingTable>, Fault> {
            Err(nowhere())
        }

        fn redis_addresses(&self) -> BoxFuture<'_, Result<Vec<(NodeId, String)>, Fault>> {
            Box::pin(async { Err(nowhere()) })
        }

        fn enter(&self, _count: usize) -> Result<(), Fault> {
            Ok(())
        }

        fn leave(&self, _count: usize) {}

        fn get_all<'a>(
            &'a self,
            gets: &'a [GetRequest],
            _deadline: Instant,
            _generations: &'a mut ReadGenerations,
        ) -> BoxFuture<'a, Vec<Result<GetResponse, Fault>>> {
            Box::pin(async {
                let get = |get: &GetRequest| {
                    let found = self.values.lock().get(&get.key).cloned();
                    let (value, version) = found.clone().unwrap_or_default();
                    Ok(GetResponse {
                        found: found.is_some(),
                        value,
                        version: found.map(|_| Version {
                            time: version,
                            ..Version::default()
                        }),
                        ..GetResponse::default()
                    })
                };
                let values = gets.iter().map(get).collect();
                // Others write meanwhile.
                tokio::task::yield_now().await;
                values
            })
        }

        fn put_all<'a>(
            &'a self,
            puts: &'a [PutRequest],
            _deadline: Instant,
        ) -> BoxFuture<'a, Vec<Result<PutResponse, Fault>>> {
            Box::pin(async { puts.iter().map(|put| self.put(put)).collect() })
        }

        fn delete_all<'a>(
            &'a self,
            deletes: &'a [DeleteRequest],
            _deadline: Instant,
        ) -> BoxFuture<'a, Vec<Result<DeleteResponse, Fault>>> {
            assert!(deletes.is_empty(), "these tests delete nothing");
            Box::pin(async { Vec::new() })
        }

        fn scan(
            &self,
            _request: ScanRequest,
        ) -> Result<BoxStream<'static, Result<ScanResponse, Fault>>, Fault> {
            Err(nowhere())
        }

        fn may(&self, _: &Caller, _: Role, _: &str, _: &[u8]) -> Result<(), Fault> {
            Ok(())
        }

        fn denied(&self, _caller: &Caller, _call: &str, _fault: &Fault) {}

        fn holder(&self, _token: &str) -> Result<Arc<Holder>, Fault> {
            Err(nowhere())
        }

        fn force_charge(&self, _bytes: usize) -> Charge {
            Box::new(())
        }

        fn charge(
            &self,
            _bytes: usize,
            _whole: usize,
            _until: Instant,
        ) -> BoxFuture<'_, Result<Charge, Fault>> {
            Box::pin(async { Ok(Box::new(()) as Charge) })
        }

        fn charged_bytes(&self) -> usize {
            0
        }

        fn resident_bytes(&self) -> u64 {
            0
        }
    }

    /// Increments the key once; returns the answer.
    async fn increment(server: &Arc<Server>) -> Answers {
        let group = Group {
            place: Place {
                database: 0,
                key: "n".into(),
            },
            ops: vec![KeyOp::IncrBy(1)],
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut answers = all(server, vec![(0, group)], deadline).await;
        answers.remove(0).1
    }

    #[tokio::test]
    async fn increments_of_two_nodes_all_count_however_often_the_key_changes_between() {
        let conflict = |number| {
            let fault = Fault::new(Reason::ConditionNotMet, "another node was faster");
            (number % 3 == 0).then_some(fault)
        };
        let (map, one) = Map::server(conflict);
        // Another server with lines of its own, on the same map.
        let other = Server::new(
            one.options.clone(),
            Arc::<Map>::clone(&map),
            Arc::clone(&one.metrics),
            CancellationToken::new(),
        );
        let servers = [&one, &other].into_iter().cycle();
        let increments = servers.take(1_000).map(increment);
        let answers = join_all(increments).await;
        let mut told: Vec<_> = answers
            .into_iter()
            .map(|answer| match answer.unwrap()[..] {
                [Reply::Integer(number)] => number,
                ref other => panic!("{other:?}"),
            })
            .collect();
        told.sort_unstable();
        assert!(told.into_iter().eq(1..=1_000), "each number was told once");
        assert_eq!(map.values.lock()[&b"n"[..]].0, "1000");
        assert!(one.metrics.combined.get() > 0 && one.metrics.conflicts.get() > 0);
        assert!(one.lines.0.lock().is_empty() && other.lines.0.lock().is_empty());
    }

    #[tokio::test]
    async fn a_write_of_unknown_outcome_is_not_repeated() {
        let (map, server) = Map::server(|number| (number == 1).then(|| Fault::unknown("lost")));
        let fault = increment(&server).await.unwrap_err();
        assert!(fault.maybe_applied);
        assert_eq!(map.puts.load(Ordering::SeqCst), 1);
        assert_eq!(increment(&server).await.unwrap(), [Reply::Integer(1)]);
    }

    #[tokio::test]
    async fn a_task_that_is_dropped_leaves_no_line_and_tells_its_callers() {
        let (_, server) = Map::server(|_| None);
        let (tell, hear) = oneshot::channel();
        let job = Job {
            ops: vec![KeyOp::IncrBy(1)],
            deadline: Instant::now(),
            tell,
        };
        let lines = server.lines.enter(vec![(Place::default(), job)]);
        let mut serving = Box::pin(serve(Arc::clone(&server), lines));
        assert!(futures::poll!(&mut serving).is_pending(), "its get waits");
        assert_eq!(server.lines.0.lock().len(), 1);
        drop(serving);
        assert!(hear.await.is_err());
        assert!(server.lines.0.lock().is_empty());
    }
}

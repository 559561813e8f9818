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
use torc_ring::topology::NamespaceMode;

use super::burst::{Group, Place};
use super::run::{Answers, apply, delete_of, get, get_all, put_of, state_of};
use crate::kv::{self, Generations};
use crate::shared::Shared;

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
    shared: Arc<Shared>,
    lines: Vec<Line>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut lines = self.shared.resp.lines.0.lock();
        for line in &self.lines {
            lines.remove(&line.place);
        }
    }
}

/// Runs groups; returns the answers with the groups' numbers.
pub(super) async fn all(
    shared: &Arc<Shared>,
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
    let lines = shared.resp.lines.enter(jobs);
    if !lines.is_empty() {
        tokio::spawn(serve(Arc::clone(shared), lines));
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
async fn serve(shared: Arc<Shared>, lines: Vec<Line>) {
    let mut served = Served {
        shared: Arc::clone(&shared),
        lines,
    };
    let mut pause = PAUSE;
    loop {
        for line in &mut served.lines {
            shared.resp.lines.join(line);
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
    let shared = Arc::clone(&served.shared);
    let latest = served.lines.iter().flat_map(|line| &line.jobs);
    let latest = latest.map(|job| job.deadline).max();
    let latest = latest.unwrap_or_else(Instant::now);
    let gets = served.lines.iter().map(|line| get(&shared, &line.place));
    // Static namespaces have no part in this: they refuse writes.
    let generations = &mut Generations::default();
    let values = get_all(&shared, gets.collect(), latest, generations).await;
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
        let (computed, written) = compute(&shared, line, value);
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
        kv::put_all(&shared, &puts, latest),
        kv::delete_all(&shared, &deletes, latest),
    );
    let outcomes = puts.into_iter().map(|it| it.map(|_| ()));
    let outcomes = outcomes.chain(deletes.into_iter().map(|it| it.map(|_| ())));
    for (computed, outcome) in put.into_iter().chain(deleted).zip(outcomes) {
        match outcome {
            Ok(()) => {
                let shared_it = computed.line.jobs.len().saturating_sub(1);
                shared.metrics.resp.combined.inc_by(shared_it as u64);
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
fn compute(shared: &Shared, line: Line, value: GetResponse) -> (Computed, Option<Written>) {
    let version = value.version;
    let mut state: KeyState = state_of(value);
    let was_there = state.entry.is_some();
    let replies = line.jobs.iter().map(|job| apply(&job.ops, &mut state));
    let replies = replies.collect();
    let condition = Some(version.map_or(Kind::IfAbsent(true), Kind::IfVersion));
    let mut ops = line.jobs.iter().flat_map(|job| &job.ops);
    // There, the last writer wins over what was read, and conditions are refused.
    let is_eventual = mode_of(shared, &line.place) == Some(NamespaceMode::Eventual);
    let is_plain = |op: &KeyOp| op.is_read() || op.is_blind(MAX_VALUE_LEN) || *op == KeyOp::Del;
    let condition = condition.filter(|_| !(is_eventual && ops.clone().all(is_plain)));
    let deletes = ops.any(|op| matches!(op, KeyOp::Del | KeyOp::GetDel));
    let written = match state.entry {
        // Nothing to delete: but a record that is merged later must not take effect.
        None if !was_there && (deletes || state.is_changed) && is_merging(shared, &line.place) => {
            let request = delete_of(shared, &line.place, condition);
            Some(Written::Delete(Box::new(request)))
        }
        _ if !state.is_changed => None,
        // A command created the value and a later one deleted it.
        None if !was_there => None,
        None => {
            let request = delete_of(shared, &line.place, condition);
            Some(Written::Delete(Box::new(request)))
        }
        Some(entry) => {
            let request = put_of(shared, &line.place, entry, condition);
            Some(Written::Put(Box::new(request)))
        }
    };
    (Computed { line, replies }, written)
}

fn mode_of(shared: &Shared, place: &Place) -> Option<NamespaceMode> {
    let name = shared.resp.namespace(place.database);
    let namespace = kv::namespace_of(&*shared.routing().ok()?, &name);
    namespace.ok().map(|namespace| namespace.mode)
}

/// Whether a record that is merged may have this key.
fn is_merging(shared: &Shared, place: &Place) -> bool {
    let Ok(table) = shared.routing() else {
        return false;
    };
    // Other modes share the partitions, and take no merges.
    if mode_of(shared, place) != Some(NamespaceMode::Linearizable) {
        return false;
    }
    let partition = kv::partition_of(shared, &get(shared, place));
    let state = partition.and_then(|partition| table.state(partition));
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
    if let Some(line) = served.shared.resp.lines.leave(place) {
        tokio::spawn(serve(Arc::clone(&served.shared), vec![line]));
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
    served.shared.metrics.resp.conflicts.inc();
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

//! The requests of clients. Each client has one operation, or one batch, in progress at a time.
//!
//! Half of the requests go to a few keys, which many clients write concurrently; requests for other
//! keys are so rare that their histories span several faults.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use torc_client::Version;
use torc_sim::Rng;
use torc_sim::history::{Kind, Value};

use super::group::{Contacts, Group};
use super::recorder::{Answer, Asker, Recorder};
use super::wire::{Ask, Wire};
use super::{Error, Mode, Options};

const HOT: u64 = 4;
const COLD: u64 = 192;
/// Most operations of a batch.
const LARGEST_BATCH: u64 = 8;
/// Keys whose versions a client remembers.
const REMEMBERED: usize = 1_024;

/// Starts the clients. Each ends when `over` is set and its operation is answered.
pub(super) async fn spawn(
    options: &Options,
    group: &Group,
    recorder: &Arc<Recorder>,
    over: &Arc<AtomicBool>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let mut tasks = Vec::new();
    for number in 0..options.clients {
        let wire = Wire::new(group)?;
        wire.library().topology().await?;
        let client = OneClient {
            number,
            straight_to: (number % 2 == 1 && !options.by_library).then(|| group.contacts.clone()),
            wire,
            rng: Rng::new(
                options
                    .seed
                    .wrapping_mul(1_000)
                    .wrapping_add(u64::from(number)),
            ),
            mode: options.mode,
            drops_calls: Arc::clone(&group.drops_calls),
            recorder: Arc::clone(recorder),
            known: HashMap::new(),
        };
        tasks.push(tokio::spawn(client.run(Arc::clone(over))));
    }
    Ok(tasks)
}

struct OneClient {
    number: u32,
    straight_to: Option<Contacts>,
    wire: Wire,
    rng: Rng,
    mode: Mode,
    drops_calls: Arc<AtomicBool>,
    recorder: Arc<Recorder>,
    /// The newest version known of a key, and its value.
    known: HashMap<usize, (Version, Value)>,
}

impl OneClient {
    async fn run(mut self, over: Arc<AtomicBool>) {
        while !over.load(Ordering::Relaxed) {
            self.one_request().await;
            tokio::time::sleep(Duration::from_micros(self.rng.below(6_000))).await;
        }
    }

    async fn one_request(&mut self) {
        let contacts = self.straight_to.as_ref().map(Contacts::present);
        let node = contacts.and_then(|contacts| self.rng.pick(&contacts));
        let by = Asker {
            client: Some(self.number),
            node: node.map(|node| node.number),
        };
        let is_batch = self.rng.chance(100);
        let asks: Vec<_> = if is_batch {
            let is_of_gets = self.rng.chance(400);
            let count = 2 + self.rng.below(LARGEST_BATCH - 1);
            (0..count).map(|_| self.item(by, is_of_gets)).collect()
        } else {
            let kind = self.rng.below(100);
            vec![self.ask(by, kind)]
        };
        let (wire, node) = (self.wire.clone(), node.map(|node| node.address));
        let asking = async {
            match (&asks[..], node) {
                ([ask], Some(node)) => vec![wire.ask_node(node, ask).await],
                ([ask], None) => vec![wire.ask(ask).await],
                (asks, Some(node)) => wire.ask_node_for_batch(node, asks).await,
                (asks, None) => wire.ask_batch(asks).await,
            }
        };
        let answers = if self.drops_calls.load(Ordering::Relaxed) && self.rng.chance(300) {
            let time = Duration::from_micros(self.rng.below(4_000));
            let answers = tokio::time::timeout(time, asking).await;
            answers.unwrap_or_else(|_| vec![Answer::Unknown; asks.len()])
        } else {
            asking.await
        };
        for (ask, answer) in asks.iter().zip(&answers) {
            self.recorder.end(ask.begun.ticket, *answer);
            self.remember(ask.begun.ticket.key, ask.begun.kind, *answer);
        }
        if answers.contains(&Answer::Failed) {
            // Refused connections return at once: without a pause they would fill the histories.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Begins an item of a batch.
    fn item(&mut self, by: Asker, is_get: bool) -> Ask {
        let kind = if is_get { 0 } else { self.rng.between(55, 99) };
        self.ask(by, kind)
    }

    /// Begins an operation on any key. `kind` is as of [`choose`].
    fn ask(&mut self, by: Asker, kind: u64) -> Ask {
        let is_hot = self.rng.chance(400);
        let slot = if is_hot {
            self.rng.below(HOT)
        } else {
            HOT + self.rng.below(COLD)
        };
        let key = self.recorder.key_of(slot);
        let known = self.known.get(&key).copied();
        let dice = (kind, self.rng.chance(500));
        let mode = self.mode;
        let begun = self
            .recorder
            .begin(key, by, |value| choose(dice, known, value, mode));
        let version = known.map(|(version, _)| version);
        Ask { begun, version }
    }

    fn remember(&mut self, key: usize, kind: Kind, answer: Answer) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        match (answer, kind) {
            (Answer::Found(value, version), _)
            | (
                Answer::Written(version),
                Kind::Put(value) | Kind::PutIfAbsent(value) | Kind::Cas(_, value),
            ) => {
                self.known.insert(key, (version, value));
            }
            (Answer::Failed, _) => {}
            _ => {
                self.known.remove(&key);
            }
        }
    }
}

fn choose(
    (kind, is_cas): (u64, bool),
    known: Option<(Version, Value)>,
    value: Value,
    mode: Mode,
) -> Kind {
    if mode == Mode::Eventual {
        // In this mode there are no conditions, and each write returns its version.
        return match kind {
            0..45 => Kind::Get,
            45..55 => Kind::Erase,
            _ => Kind::Put(value),
        };
    }
    match (kind, known) {
        (0..40, _) => Kind::Get,
        (40..43, Some((_, old))) => Kind::DeleteIf(old),
        (40..46, _) => Kind::Delete,
        (46..50, _) => Kind::Erase,
        (50..80, Some((_, old))) if is_cas => Kind::Cas(old, value),
        (80..90, _) => Kind::PutIfAbsent(value),
        _ => Kind::Put(value),
    }
}

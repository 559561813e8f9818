//! A static namespace during faults: a publisher builds, attaches and promotes one generation after
//! the other, while readers check that each answer is of a generation that they may see.
//!
//! * A get that begins after a promotion was confirmed finds no older generation, at any node.
//! * All answers of a batch are of one generation.
//! * A client of the library never goes back.
//!
//! Absent on purpose: rollbacks, after which a value would not tell when it was current.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::Request;
use tonic::transport::Endpoint;
use torc_build::{Build, BuildError, BuildOptions, Manifest, Target};
use torc_client::{Client, GenerationContent, GenerationShape, NamespaceMode, Reservation};
use torc_proto::v1::GetRequest;
use torc_proto::v1::kv_client::KvClient;
use torc_sim::Rng;

use super::group::{Contacts, Group};
use super::report::Report;
use super::{Error, Options};

const NAMESPACE: &str = "published";
const KEYS: u64 = 64;
const BATCH: u64 = 8;
const READERS: u64 = 6;
/// Time limit of a step of the publisher. It repeats steps that fail.
const STEP: Duration = Duration::from_secs(5);
/// Time limit of a direct read.
const TIME: Duration = Duration::from_secs(2);
/// Longest pause between the moment when all members hold a generation and its promotion.
const MOST_PAUSE_MS: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(50);
/// Time limit for the last generation, once the faults are over.
const ENDING: Duration = Duration::from_secs(120);
/// Wrong answers that are reported.
const TOLD: usize = 5;

/// The first generation is 1. Each lacks some of the keys.
fn has(generation: u64, key: u64) -> bool {
    !(key + generation).is_multiple_of(generation % 5 + 2)
}

fn name(key: u64) -> String {
    format!("page/{key}")
}

/// What readers may see, and what they have seen.
#[derive(Default)]
struct Board {
    /// The last generation whose promotion was confirmed; 0: none.
    confirmed: AtomicU64,
    /// The last generation whose promotion was requested.
    requested: AtomicU64,
    answers: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// Answers of one request: keys, each with the generation of its value; `None`: absent.
type Answers = Vec<(u64, Option<u64>)>;

impl Board {
    /// Notes a request's answers. Returns the first generation from `floor` on that they can be of.
    fn judge(&self, floor: u64, answers: &Answers, who: &str) -> Option<u64> {
        self.answers
            .fetch_add(answers.len() as u64, Ordering::Relaxed);
        let last = self.requested.load(Ordering::SeqCst);
        let is_of = |generation: u64| {
            let fits = |(key, found): &(u64, Option<u64>)| match found {
                Some(found) => *found == generation && has(generation, *key),
                // Before the first generation, every key is absent.
                None => generation == 0 || !has(generation, *key),
            };
            answers.iter().all(fits)
        };
        let first = (floor..=last).find(|generation| is_of(*generation));
        if first.is_none() {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            if wrong.len() < TOLD {
                wrong.push(format!(
                    "{who} was answered {answers:?}, but may see generations {floor} to {last}"
                ));
            }
        }
        first
    }
}

/// The publisher and the readers of a run.
pub(super) struct Generations {
    board: Arc<Board>,
    client: Client,
    readers: Vec<JoinHandle<()>>,
    publisher: JoinHandle<Result<(), String>>,
}

impl Generations {
    /// Creates the namespace and starts publisher and readers. They end when `over` is set, the
    /// publisher after the generation that it works at.
    pub(super) async fn start(
        options: &Options,
        group: &Group,
        over: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let client = group.client_of(NAMESPACE)?;
        let created = client.with_deadline(ENDING);
        created
            .create_namespace(NAMESPACE, NamespaceMode::Static, None)
            .await?;
        let board = Arc::new(Board::default());
        let publisher = Publisher {
            client: client.with_deadline(STEP),
            board: Arc::clone(&board),
            within: group.within().join("generations"),
            rng: Rng::new(options.seed ^ 0x7075_626c),
        };
        let mut readers = Vec::new();
        for number in 0..READERS {
            let reader = Reader {
                number,
                client: group.client_of(NAMESPACE)?,
                contacts: group.contacts.clone(),
                board: Arc::clone(&board),
                rng: Rng::new(options.seed ^ (number << 32) ^ 0x7061_6765),
                last: 0,
            };
            readers.push(tokio::spawn(reader.run(Arc::clone(over))));
        }
        Ok(Self {
            board,
            client,
            readers,
            publisher: tokio::spawn(publisher.run(Arc::clone(over))),
        })
    }

    /// Waits for all of them once `over` is set, reads every key, and notes the result.
    pub(super) async fn end(self, group: &Group, report: &mut Report) {
        futures::future::join_all(self.readers).await;
        match tokio::time::timeout(ENDING, self.publisher).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(trouble))) => report.note_trouble(trouble),
            Ok(Err(panic)) => report.note_trouble(format!("the publisher gave up: {panic}")),
            Err(_) => report.note_trouble(format!(
                "a generation is not promoted {ENDING:?} after the last fault"
            )),
        }
        let floor = self.board.confirmed.load(Ordering::SeqCst);
        let client = self.client.with_deadline(ENDING);
        let found = client.batch_get((0..KEYS).map(name)).await;
        match found.map(|found| of_batch(0..KEYS, found)) {
            Ok(Some(answers)) => drop(self.board.judge(floor, &answers, "the last batch")),
            _ => report.note_trouble("a static key of the healed cluster cannot be read".into()),
        }
        for contact in group.contacts.present() {
            for key in 0..KEYS {
                match straight(contact.address, key).await {
                    Some(found) => {
                        let who = format!("the last get at node {}", contact.number);
                        self.board.judge(floor, &vec![(key, found)], &who);
                    }
                    None => report.note_trouble(format!(
                        "node {} does not answer for static key {key}",
                        contact.number
                    )),
                }
            }
        }
        let answers = self.board.answers.load(Ordering::Relaxed);
        let mut wrong = self.board.wrong.lock();
        let wrong = wrong.as_deref_mut().map(std::mem::take);
        report.note_generations(floor, answers, wrong.unwrap_or_default());
    }
}

struct Publisher {
    client: Client,
    board: Arc<Board>,
    /// Directories of builds, which nodes fetch from.
    within: PathBuf,
    rng: Rng,
}

impl Publisher {
    async fn run(mut self, over: Arc<AtomicBool>) -> Result<(), String> {
        let mut earlier = Vec::new();
        for generation in 1_u64.. {
            let reserved = again(|| self.client.reserve_generation(NAMESPACE)).await;
            let number = reserved.generation.number;
            let dir = self.within.join(generation.to_string());
            let manifest = build(&dir, reserved, generation).await?;
            let content = content(&manifest, &dir);
            again(|| self.client.attach_generation(number, &content)).await;
            while !self.is_held(number).await {
                tokio::time::sleep(PAUSE).await;
            }
            // Some members may be cut off when it is promoted.
            tokio::time::sleep(Duration::from_millis(self.rng.below(MOST_PAUSE_MS))).await;
            self.board.requested.store(generation, Ordering::SeqCst);
            // A member that lacks its share makes the request fail.
            while !again(|| self.client.promote(number, false))
                .await
                .unconfirmed
                .is_empty()
            {
                tokio::time::sleep(PAUSE).await;
            }
            self.board.confirmed.store(generation, Ordering::SeqCst);
            earlier.push((number, dir));
            if earlier.len() > 2 {
                // A member may still serve it after a wiped one joined; it is then kept.
                let (number, dir) = earlier.remove(0);
                if self.client.drop_generation(number).await.is_ok() {
                    let _ = std::fs::remove_dir_all(dir);
                }
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

impl Publisher {
    /// Whether every member holds its share of a generation.
    async fn is_held(&self, number: u32) -> bool {
        let all = again(|| self.client.generations(Some(NAMESPACE))).await;
        let mut all = all.iter();
        all.any(|it| it.number == number && it.not_ready.is_empty())
    }
}

/// Repeats a request until it succeeds.
async fn again<T, E: Display, F: Future<Output = Result<T, E>>>(request: impl Fn() -> F) -> T {
    loop {
        match request().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn build(dir: &Path, reserved: Reservation, generation: u64) -> Result<Manifest, String> {
    let dir = dir.to_owned();
    let target = Target {
        namespace: reserved.generation.id,
        digest_key: reserved.digest_key.0,
        partitions: reserved.partitions,
        ballot: reserved.generation.version,
    };
    let building = move || {
        let mut build = Build::create(&dir, target, BuildOptions::default())?;
        for key in (0..KEYS).filter(|key| has(generation, *key)) {
            build.push(name(key).into(), generation.to_string().into())?;
        }
        build.finish(|_| ())
    };
    let built: Result<Manifest, BuildError> = tokio::task::spawn_blocking(building)
        .await
        .map_err(|panic| format!("a build gave up: {panic}"))?;
    built.map_err(|error| format!("a build failed: {error}"))
}

fn content(manifest: &Manifest, dir: &Path) -> GenerationContent {
    let slices = manifest.slices();
    GenerationContent {
        manifest: manifest.digest(),
        source: format!("file://{}", dir.display()),
        records: manifest.records,
        payload_bytes: manifest.payload_bytes,
        partitions: slices.map(|it| (it.partition, it.records)).collect(),
        shape: GenerationShape::Values,
    }
}

struct Reader {
    number: u64,
    client: Client,
    contacts: Contacts,
    board: Arc<Board>,
    rng: Rng,
    /// The newest generation that this client of the library must have seen.
    last: u64,
}

impl Reader {
    async fn run(mut self, over: Arc<AtomicBool>) {
        while !over.load(Ordering::Relaxed) {
            self.read().await;
            tokio::time::sleep(Duration::from_micros(self.rng.below(6_000))).await;
        }
    }

    async fn read(&mut self) {
        let confirmed = self.board.confirmed.load(Ordering::SeqCst);
        let key = self.rng.below(KEYS);
        let who = format!("reader {}", self.number);
        if self.number % 2 == 1 {
            let contacts = self.contacts.present();
            if let Some(node) = self.rng.pick(&contacts)
                && let Some(found) = straight(node.address, key).await
            {
                let who = format!("{who} at node {}", node.number);
                self.board.judge(confirmed, &vec![(key, found)], &who);
            }
            return;
        }
        let answers = if self.rng.chance(200) {
            let keys = || (key..key + BATCH).map(|key| key % KEYS);
            let found = self.client.batch_get(keys().map(name)).await;
            found.ok().and_then(|found| of_batch(keys(), found))
        } else {
            let found = self.client.get(name(key)).await.ok();
            found.map(|found| vec![(key, found.map(|found| of_value(&found.value)))])
        };
        if let Some(answers) = answers {
            let floor = confirmed.max(self.last);
            let seen = self.board.judge(floor, &answers, &who);
            self.last = seen.unwrap_or(floor);
        }
    }
}

/// The answers of a batch; `None` if a key was not answered.
fn of_batch<E>(
    keys: impl IntoIterator<Item = u64>,
    found: Vec<Result<Option<torc_client::Value>, E>>,
) -> Option<Answers> {
    let answers = keys.into_iter().zip(found);
    let answer = |(key, found): (u64, Result<Option<torc_client::Value>, E>)| {
        Some((key, found.ok()?.map(|found| of_value(&found.value))))
    };
    answers.map(answer).collect()
}

/// The generation of a value; one that never is if the value is garbage.
fn of_value(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

/// Asks one node for a key; `None` if it does not answer.
async fn straight(node: std::net::SocketAddr, key: u64) -> Option<Option<u64>> {
    let endpoint = Endpoint::from_shared(format!("http://{node}")).ok()?;
    let channel = endpoint.connect_timeout(TIME).connect_lazy();
    let mut request = Request::new(GetRequest {
        namespace: NAMESPACE.to_owned(),
        key: name(key).into(),
        ..GetRequest::default()
    });
    request.set_timeout(TIME);
    let answer = tokio::time::timeout(TIME, KvClient::new(channel).get(request)).await;
    let answer = answer.ok()?.ok()?.into_inner();
    Some(answer.found.then(|| of_value(&answer.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(confirmed: u64, requested: u64) -> Board {
        let board = Board::default();
        board.confirmed.store(confirmed, Ordering::SeqCst);
        board.requested.store(requested, Ordering::SeqCst);
        board
    }

    #[test]
    fn an_answer_of_an_older_generation_or_of_two_is_wrong() {
        let held: Vec<u64> = (0..KEYS)
            .filter(|key| has(3, *key) && has(4, *key))
            .collect();
        let (one, other) = (held[0], held[1]);
        let board = board(3, 4);
        assert_eq!(board.judge(3, &vec![(one, Some(3))], "a"), Some(3));
        assert_eq!(board.judge(3, &vec![(one, Some(4))], "a"), Some(4));
        assert!(board.wrong.lock().unwrap().is_empty());
        assert_eq!(
            board.judge(4, &vec![(one, Some(3))], "a"),
            None,
            "it goes back"
        );
        let two = vec![(one, Some(3)), (other, Some(4))];
        assert_eq!(board.judge(3, &two, "a"), None, "of two generations");
        assert_eq!(
            board.judge(3, &vec![(one, None)], "a"),
            None,
            "both have it"
        );
        assert_eq!(board.wrong.lock().unwrap().len(), 3);
    }

    #[test]
    fn each_generation_has_keys_that_its_successor_lacks() {
        for generation in 1..20 {
            let lost = (0..KEYS).any(|key| has(generation, key) && !has(generation + 1, key));
            assert!(lost, "{generation}");
        }
    }
}

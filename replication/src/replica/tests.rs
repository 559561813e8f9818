//! Interleavings within one replica that a script cannot express: reads, fetches and confirmations
//! between two steps. `tests/scripts` has the rules of the messages.

use bytes::Bytes;
use torc_record::{Digest, Key, NamespaceId};

use super::*;
use crate::testing::Model;
use crate::{KeyId, Scanned};

const ME: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const TAG: Tag = Tag {
    op: crate::OpId(9),
    round: HybridTime(9),
};

/// A replica, its disk, and the messages sent so far.
struct Bench {
    replica: Replica,
    disk: Model,
    /// Batches on their way to it.
    queue: Vec<(Seq, ReplicaBatch)>,
    /// Messages that wait for the disk, then those sent.
    waiting: Vec<(Seq, Message)>,
    durable: Seq,
    sent: Vec<Message>,
    fetches: Vec<(NodeId, Envelope)>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::over(Model::default());
        bench.topology(&[ME, PEER, NodeId(3)], 1);
        bench.sync();
        bench
    }

    fn over(disk: Model) -> Self {
        let options = ReplicaOptions {
            promises: 4,
            ..ReplicaOptions::default()
        };
        Self {
            replica: Replica::recover(ME, Partition(0), disk.recovered(), options, Mutations::NONE),
            disk,
            queue: Vec::new(),
            waiting: Vec::new(),
            durable: Seq(0),
            sent: Vec::new(),
            fetches: Vec::new(),
        }
    }

    fn step(&mut self, input: Input) {
        let now = Now {
            elapsed_ms: 0,
            unix_ms: 1_000,
        };
        let mut out = Vec::new();
        self.replica.step(now, input, &self.disk, &mut out);
        for effect in out {
            match effect {
                Effect::Persist { seq, batch } => self.queue.push((seq, batch)),
                Effect::Send {
                    after, envelope, ..
                } => self.waiting.push((after, envelope.message)),
                Effect::Read(reading) => self.step(Input::Read(reading.run(&self.disk))),
                Effect::Fetch { from, envelope } => self.fetches.push((from, envelope)),
                Effect::NeedTopology { .. }
                | Effect::Report { .. }
                | Effect::Reconcile { .. }
                | Effect::CopySlices { .. } => {}
            }
        }
        self.release(self.durable);
    }

    fn release(&mut self, durable: Seq) {
        let ready = self.waiting.extract_if(.., |(after, _)| *after <= durable);
        self.sent.extend(ready.map(|(_, message)| message));
    }

    /// Syncs until nothing new results.
    fn sync(&mut self) {
        while !self.queue.is_empty() {
            let (seq, batch) = self.queue.remove(0);
            self.disk.apply(batch);
            self.durable = seq;
            self.release(seq);
            self.step(Input::Persisted(seq));
        }
    }

    /// Makes the key's record fail its checksum from now on.
    fn rot(&mut self) {
        self.disk.rot(&at());
    }

    fn topology(&mut self, nodes: &[NodeId], epoch: u64) {
        let config = Config::founded(Partition(0), Epoch(epoch), nodes);
        self.step(Input::Topology(Arc::new(config)));
    }

    /// Delivers a message of an epoch; returns the messages sent since.
    fn hear(&mut self, epoch: u64, message: Message) -> Vec<Message> {
        let envelope = Envelope {
            partition: Partition(0),
            epoch: Epoch(epoch),
            message,
        };
        self.step(Input::Message {
            from: PEER,
            envelope,
        });
        std::mem::take(&mut self.sent)
    }

    /// The same, then syncs everything.
    fn ask(&mut self, epoch: u64, message: Message) -> Vec<Message> {
        let mut sent = self.hear(epoch, message);
        self.sync();
        sent.append(&mut self.sent);
        sent
    }
}

fn ballot(epoch: u64, ms: u64) -> Ballot {
    Ballot {
        epoch: Epoch(epoch),
        time: HybridTime::from_unix_ms(ms),
        slot: NodeSlot(2),
    }
}

fn at() -> Locator {
    Locator::of(&record(ballot(1, 1)))
}

fn record(ballot: Ballot) -> Record {
    Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest([5; 16]),
        key: Key::new(&b"k"[..]).unwrap(),
        ballot,
        origin: None,
        state: State::Value {
            value: Bytes::from_static(b"v"),
            expires_at_ms: None,
        },
    }
}

fn expiring(ballot: Ballot, at_ms: u64) -> Record {
    let state = State::Value {
        value: Bytes::from_static(b"v"),
        expires_at_ms: Some(at_ms),
    };
    Record {
        state,
        ..record(ballot)
    }
}

fn accept(ballot: Ballot) -> Message {
    Message::Accept {
        tag: TAG,
        record: record(ballot),
        next: None,
    }
}

fn store(ballot: Ballot) -> Message {
    let record = record(ballot);
    Message::Store { tag: TAG, record }
}

#[test]
fn the_first_expiry_is_not_forgotten_between_two_collections_to_one_ballot() {
    let mut bench = Bench::new();
    let upto = ballot(1, 50);
    bench.ask(1, Message::GcFloor { upto });
    assert_eq!(bench.replica.first_expiry_ms(), u64::MAX);
    bench.hear(1, Message::GcFloor { upto });
    let store = Message::Store {
        tag: TAG,
        record: expiring(ballot(1, 60), 2_000),
    };
    bench.hear(1, store);
    let (seq, batch) = bench.queue.remove(0);
    bench.disk.meta = batch.meta.unwrap_or(bench.disk.meta);
    bench.durable = seq;
    bench.hear(1, Message::GcFloor { upto });
    bench.step(Input::Persisted(seq));
    assert_eq!(bench.replica.first_expiry_ms(), 2_000);
}

fn read(closes: Ballot) -> Message {
    Message::Read {
        tag: TAG,
        at: at(),
        want_value: true,
        closes,
    }
}

#[test]
fn no_answer_tells_up_to_where_a_replica_is_closed_before_that_is_durable() {
    let mut bench = Bench::new();
    let record = expiring(ballot(1, 10), 500);
    bench.ask(1, Message::Store { tag: TAG, record });
    assert_eq!(bench.hear(1, read(ballot(1, 500))), []);
    let plain = bench.hear(1, read(Ballot::default()));
    assert_eq!(plain, [], "after a crash the value would be back");
    let refusal = bench.hear(1, store(ballot(1, 400)));
    assert_eq!(refusal, [], "after a crash it would be stored");
    bench.sync();
    let told = std::mem::take(&mut bench.sent);
    assert!(
        matches!(
            told[..],
            [
                Message::Holding { .. },
                Message::Holding { .. },
                Message::Nack { .. }
            ]
        ),
        "{told:?}"
    );
    let prepare = Message::Prepare {
        tag: TAG,
        at: at(),
        ballot: ballot(1, 1_400),
        doubted: None,
    };
    assert_eq!(bench.hear(1, prepare), [], "it raises the ceiling");
    let plain = bench.hear(1, read(Ballot::default()));
    assert_eq!(plain.len(), 1, "a ceiling delays no read");
}

#[test]
fn a_page_that_was_read_before_a_purge_is_read_again() {
    let mut bench = Bench::new();
    bench.ask(1, store(ballot(1, 40)));
    let mut out = Vec::new();
    bench
        .replica
        .on_pull(PEER, TAG, None, (None, None), &mut out);
    let Some(Effect::Read(reading)) = out.pop() else {
        panic!("{out:?}");
    };
    let readout = reading.run(&bench.disk);
    let upto = ballot(1, 50);
    bench.ask(1, Message::GcPurge { upto });
    bench.step(Input::Read(readout));
    let [Message::Page { collected, .. }] = &bench.sent[..] else {
        panic!("{:?}", bench.sent);
    };
    assert_eq!(*collected, upto);
}

/// A disk that panics if a step reads it.
struct Slow;

impl Storage for Slow {
    fn get(&self, at: &Locator) -> Lookup {
        panic!("a step reads {at:?}")
    }

    fn scan(&self, _after: Option<KeyId>, _limit: usize) -> Scanned {
        panic!("a step scans")
    }
}

#[test]
fn what_differs_from_a_peers_listing_is_read_before_the_step() {
    let mut bench = Bench::new();
    bench.ask(1, accept(ballot(1, 40)));
    bench.rot();
    let listing = crate::compare::Listing {
        range: crate::compare::Range::ALL,
        entries: vec![(at(), Some(ballot(1, 40)))],
    };
    let mut out = Vec::new();
    bench.replica.on_list(PEER, listing, &mut out);
    let Some(Effect::Read(reading)) = out.pop() else {
        panic!("{out:?}");
    };
    let readout = Input::Read(reading.run(&bench.disk));
    bench.replica.step(Now::default(), readout, &Slow, &mut out);
    let [Effect::Reconcile { at: found, rewrite }] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!((found, *rewrite), (&at(), true));
}

#[test]
fn a_message_whose_key_is_not_at_hand_is_handled_once_it_was_fetched_and_in_its_epoch_only() {
    let mut bench = Bench::new();
    bench.ask(1, accept(ballot(1, 900)));
    bench.disk.is_far = true;
    let read = || read(Ballot::default());
    assert_eq!(bench.hear(1, read()), [], "it would wait for the disk");
    assert_eq!(bench.hear(1, read()), []);
    let above_all = bench.ask(1, accept(ballot(1, 950)));
    assert!(
        matches!(above_all[..], [Message::Accepted { .. }]),
        "nothing is looked up for it: {above_all:?}"
    );
    let mut fetched = std::mem::take(&mut bench.fetches).into_iter();
    let (from, envelope) = fetched.next().unwrap();
    bench.step(Input::Fetched { from, envelope });
    let told = std::mem::take(&mut bench.sent);
    let [Message::Holding { held, .. }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(
        held.ballot,
        ballot(1, 950),
        "what is here now, not what was"
    );
    bench.topology(&[ME, PEER, NodeId(4)], 2);
    bench.sync();
    bench.sent.clear();
    let (from, envelope) = fetched.next().unwrap();
    bench.step(Input::Fetched { from, envelope });
    assert!(
        matches!(bench.sent[..], [Message::Epoch { .. }]),
        "{:?}",
        bench.sent
    );
    assert!(bench.fetches.is_empty());
}

fn claim(epoch: u64, version: Ballot, is_absent: bool) -> crate::Claim {
    crate::Claim {
        partition: Partition(0),
        epoch: Epoch(epoch),
        at: at(),
        version,
        is_absent,
    }
}

#[test]
fn a_replica_confirms_exactly_what_is_durable_here_and_in_its_epoch() {
    let mut bench = Bench::new();
    let confirms = |bench: &Bench, claim: &crate::Claim| {
        bench.replica.confirms(claim, &bench.disk.get(&claim.at))
    };
    let nothing = claim(1, Ballot::default(), true);
    assert!(confirms(&bench, &nothing));
    assert!(
        !confirms(&bench, &claim(1, ballot(1, 5), true)),
        "another watermark"
    );
    bench.hear(1, accept(ballot(1, 10)));
    let written = claim(1, ballot(1, 10), false);
    assert!(!confirms(&bench, &written), "it is on its way to the disk");
    bench.sync();
    assert!(confirms(&bench, &written));
    assert!(!confirms(&bench, &claim(1, ballot(1, 9), false)));
    assert!(!confirms(&bench, &nothing));
    bench.rot();
    assert!(!confirms(&bench, &written), "no say");

    assert!(bench.replica.vouches_in(Epoch(1)));
    assert!(!bench.replica.vouches_in(Epoch(2)));
    bench.topology(&[ME, PEER, NodeId(3)], 2);
    assert!(!bench.replica.vouches_in(Epoch(2)), "not durable yet");
    bench.sync();
    assert!(bench.replica.vouches_in(Epoch(2)));
    assert!(!bench.replica.vouches_in(Epoch(1)), "R1");
    bench.topology(&[PEER, NodeId(3), NodeId(4)], 3);
    bench.sync();
    assert!(!bench.replica.vouches_in(Epoch(3)), "no member");
}

#[test]
fn what_a_collection_has_made_absent_is_not_confirmed() {
    let mut bench = Bench::new();
    let message = Message::Accept {
        tag: TAG,
        record: expiring(ballot(1, 10), 500),
        next: None,
    };
    bench.ask(1, message);
    let claim = claim(1, ballot(1, 10), false);
    assert!(bench.replica.confirms(&claim, &bench.disk.get(&at())));
    let upto = Message::GcFloor {
        upto: ballot(1, 600),
    };
    bench.ask(1, upto);
    assert!(!bench.replica.confirms(&claim, &bench.disk.get(&at())));
}

#[test]
fn few_promises_do_not_shorten_the_memory_of_versions_in_doubt() {
    let mut bench = Bench::new();
    let versions = (10..30).map(|ms| ballot(1, ms));
    for version in versions {
        bench.ask(1, accept(version));
    }
    let prepare = Message::Prepare {
        tag: TAG,
        at: at(),
        ballot: ballot(1, 100),
        doubted: Some(ballot(1, 10)),
    };
    let answers = bench.ask(1, prepare);
    let [Message::Promised { recall, .. }] = &answers[..] else {
        panic!("{answers:?}");
    };
    let version = ballot(1, 29);
    let stored = crate::Recall::Stored {
        version,
        is_accepted: true,
        last: version,
    };
    assert_eq!(*recall, stored);
}

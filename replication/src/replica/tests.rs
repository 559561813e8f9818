//! Scripts for one replica: what comes in, what is on the disk, what goes out.

use std::collections::BTreeMap;

use bytes::Bytes;
use torc_record::{Digest, Key, NamespaceId};

use super::*;
use crate::{Content, Entry, KeyId, Recall, Scanned};

const ME: NodeId = NodeId(1);
const PEER: NodeId = NodeId(2);
const TAG: Tag = Tag {
    op: crate::OpId(9),
    round: HybridTime(9),
};

#[derive(Default)]
struct Disk {
    entries: BTreeMap<(KeyId, Key), Entry>,
    meta: Meta,
    queue: Vec<(Seq, Batch)>,
    /// Nothing is at hand.
    is_far: bool,
}

impl Storage for Disk {
    fn get(&self, at: &Locator) -> Lookup {
        match self.entries.get(&(at.id(), at.key.clone())) {
            None => Lookup::Absent,
            Some(Entry::Found(record)) => Lookup::Found(record.clone()),
            Some(Entry::Unreadable(_)) => Lookup::Unreadable,
        }
    }

    fn is_at_hand(&self, _at: &Locator) -> bool {
        !self.is_far
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        let later = self
            .entries
            .iter()
            .filter(|((id, _), _)| after.is_none_or(|a| *id > a));
        let entries = later.take(limit).map(|(_, entry)| entry.clone());
        Scanned::of(entries.collect(), limit)
    }
}

/// A replica, its disk, and what it has sent so far.
struct Bench {
    replica: Replica,
    disk: Disk,
    /// Messages that wait for the disk, then those that went out.
    waiting: Vec<(Seq, Message)>,
    durable: Seq,
    sent: Vec<Message>,
    reconciles: Vec<(Locator, bool)>,
    fetches: Vec<(NodeId, Envelope)>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::over(Disk::default());
        bench.topology(&[ME, PEER, NodeId(3)], 1);
        bench.sync();
        bench
    }

    fn over(disk: Disk) -> Self {
        let options = ReplicaOptions {
            promises: 4,
            ..ReplicaOptions::default()
        };
        Self {
            replica: Replica::recover(ME, Partition(0), disk.meta, options, Mutations::NONE),
            disk,
            waiting: Vec::new(),
            durable: Seq(0),
            sent: Vec::new(),
            reconciles: Vec::new(),
            fetches: Vec::new(),
        }
    }

    /// Crashes: what was not synced is gone.
    fn restart(mut self) -> Self {
        self.disk.queue.clear();
        Self::over(self.disk)
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
                Effect::Persist { seq, batch } => self.disk.queue.push((seq, batch)),
                Effect::Send {
                    after, envelope, ..
                } => self.waiting.push((after, envelope.message)),
                Effect::Reconcile { at, rewrite } => self.reconciles.push((at, rewrite)),
                Effect::Read(reading) => self.step(Input::Read(reading.run(&self.disk))),
                Effect::Fetch { from, envelope } => self.fetches.push((from, envelope)),
                Effect::NeedTopology { .. } | Effect::Report { .. } | Effect::CopySlices { .. } => {
                }
            }
        }
        self.release(self.durable);
    }

    fn release(&mut self, durable: Seq) {
        let ready = self.waiting.extract_if(.., |(after, _)| *after <= durable);
        self.sent.extend(ready.map(|(_, message)| message));
    }

    /// Syncs everything, until nothing new comes of it.
    fn sync(&mut self) {
        while !self.disk.queue.is_empty() {
            let (seq, batch) = self.disk.queue.remove(0);
            if batch.wipe {
                self.disk.entries.clear();
            }
            for record in batch.records {
                let id = (KeyId::of(&record), record.key.clone());
                self.disk.entries.insert(id, Entry::Found(record));
            }
            if let Some(collected) = batch.purge {
                self.disk.entries.retain(|_, entry| match entry {
                    Entry::Found(r) => !crate::is_collected(r.ballot, &r.state, collected),
                    Entry::Unreadable(_) => true,
                });
            }
            self.disk.meta = batch.meta.unwrap_or(self.disk.meta);
            self.durable = seq;
            self.release(seq);
            self.step(Input::Persisted(seq));
        }
    }

    /// The record of the key fails its checksum from now on.
    fn rot(&mut self) {
        let entry = Entry::Unreadable(at());
        self.disk.entries.insert((at().id(), at().key), entry);
    }

    fn topology(&mut self, nodes: &[NodeId], epoch: u64) {
        let config = Config::founded(Partition(0), Epoch(epoch), nodes);
        self.step(Input::Topology(Arc::new(config)));
    }

    /// Hands over a message of an epoch; what was sent since.
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

    /// The same, and everything synced.
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

fn prepare(ballot: Ballot) -> Message {
    let at = at();
    Message::Prepare {
        tag: TAG,
        at,
        ballot,
        doubted: None,
    }
}

fn accept(ballot: Ballot) -> Message {
    Message::Accept {
        tag: TAG,
        record: record(ballot),
        next: None,
    }
}

const ACCEPTED: Message = Message::Accepted { tag: TAG };

fn is_promise(sent: &[Message]) -> bool {
    matches!(sent, [Message::Promised { .. }])
}

fn refusal(sent: &[Message]) -> Option<Ballot> {
    match sent {
        [Message::Nack { highest, .. }] => Some(*highest),
        _ => None,
    }
}

#[test]
fn a_promise_refuses_what_is_lower_and_repeats_nothing() {
    let mut bench = Bench::new();
    assert!(is_promise(&bench.ask(1, prepare(ballot(1, 20)))));
    for lower in [
        prepare(ballot(1, 20)),
        prepare(ballot(1, 19)),
        accept(ballot(1, 19)),
    ] {
        assert_eq!(refusal(&bench.ask(1, lower)), Some(ballot(1, 20)));
    }
    assert_eq!(bench.ask(1, accept(ballot(1, 20))), [ACCEPTED]);
    assert_eq!(
        bench.ask(1, accept(ballot(1, 20))),
        [ACCEPTED],
        "a copy of the message"
    );
}

#[test]
fn nothing_is_said_before_it_is_durable() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.hear(1, prepare(ballot(1, 20))),
        [],
        "the ceiling is on its way"
    );
    assert_eq!(bench.hear(1, accept(ballot(1, 20))), []);
    let later = bench.hear(1, prepare(ballot(1, 21)));
    assert_eq!(later, [], "its answer has the record that is on its way");
    bench.sync();
    let [_, ACCEPTED, Message::Promised { held, .. }] = &bench.sent[..] else {
        panic!("{:?}", bench.sent);
    };
    assert_eq!(
        held.ballot,
        ballot(1, 20),
        "an accept under way is not overlooked"
    );
}

/// What a replica remembers of what another node may have written from there on.
fn recall(bench: &mut Bench, asked: Ballot, doubted: Ballot) -> Recall {
    let ask = Message::Prepare {
        tag: TAG,
        at: at(),
        ballot: asked,
        doubted: Some(doubted),
    };
    match &bench.ask(1, ask)[..] {
        [Message::Promised { recall, .. }] => *recall,
        other => panic!("no promise: {other:?}"),
    }
}

#[test]
fn a_replica_remembers_what_it_accepted_and_denies_what_it_never_stored() {
    let mut bench = Bench::new();
    let at = |ms| ballot(1, ms);
    assert_eq!(recall(&mut bench, at(20), at(10)), Recall::Never);
    bench.ask(1, accept(at(30)));
    assert_eq!(recall(&mut bench, at(40), at(30)), Recall::Accepted(at(30)));
    assert_eq!(recall(&mut bench, at(41), at(25)), Recall::Accepted(at(30)));
    assert_eq!(recall(&mut bench, at(42), at(31)), Recall::Never);
    bench.ask(1, accept(at(50)));
    assert_eq!(recall(&mut bench, at(60), at(50)), Recall::Accepted(at(50)));

    let mut bench = bench.restart();
    bench.topology(&[ME, PEER, NodeId(3)], 1);
    let above = |ms: u64| at(bench.replica.floor().time.unix_ms() + ms);
    let (first, second) = (above(1), above(2));
    assert_eq!(
        recall(&mut bench, first, at(50)),
        Recall::Unsure,
        "forgotten"
    );
    assert_eq!(
        recall(&mut bench, second, at(51)),
        Recall::Never,
        "it has less"
    );
}

#[test]
fn a_second_promise_waits_for_the_ceiling_of_the_first() {
    let mut bench = Bench::new();
    bench.hear(1, prepare(ballot(1, 20)));
    let other = Message::Prepare {
        tag: TAG,
        at: Locator {
            digest: Digest([6; 16]),
            ..at()
        },
        ballot: ballot(1, 21),
        doubted: None,
    };
    assert_eq!(bench.hear(1, other), [], "the same batch covers it");
    bench.sync();
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn after_a_restart_every_promise_is_kept_without_a_record_of_it() {
    let mut bench = Bench::new();
    assert!(is_promise(&bench.ask(1, prepare(ballot(1, 20)))));
    let mut bench = bench.restart();
    let highest = refusal(&bench.ask(1, accept(ballot(1, 19)))).expect("refused");
    assert!(highest >= ballot(1, 20));
    let above = Ballot {
        time: HybridTime(highest.time.0 + 1),
        ..highest
    };
    assert!(
        is_promise(&bench.ask(1, prepare(above))),
        "it goes on above the ceiling"
    );
}

#[test]
fn a_new_epoch_is_acted_in_once_it_is_durable() {
    let mut bench = Bench::new();
    bench.topology(&[ME, PEER, NodeId(3)], 4);
    assert_eq!(
        bench.hear(4, accept(ballot(4, 20))),
        [],
        "kept until the epoch is durable"
    );
    let stale = bench.hear(1, accept(ballot(1, 20)));
    assert_eq!(
        stale,
        [Message::Epoch { tag: TAG }],
        "the epoch before is over"
    );
    bench.sync();
    assert_eq!(std::mem::take(&mut bench.sent), [ACCEPTED]);
    let mixed = bench.ask(4, accept(ballot(1, 21)));
    assert_eq!(mixed, [], "a ballot of another epoch than its message's");
}

#[test]
fn what_an_earlier_membership_left_is_gone_when_the_node_comes_again() {
    let mut bench = Bench::new();
    bench.ask(1, accept(ballot(1, 20)));
    let begun = Config::founded(Partition(0), Epoch(1), &[ME, PEER, NodeId(3)])
        .begin(Epoch(2), &[NodeId(4), PEER, NodeId(3)], &[])
        .and_then(|c| c.advance(Epoch(3), Mutations::NONE))
        .and_then(|c| c.advance(Epoch(4), Mutations::NONE))
        .and_then(|c| c.advance(Epoch(5), Mutations::NONE))
        .unwrap();
    bench.step(Input::Topology(Arc::new(begun.clone())));
    bench.sync();
    assert_eq!(bench.disk.entries.len(), 1, "kept until told to discard");
    let again = begun
        .begin(Epoch(6), &[NodeId(4), ME, NodeId(3)], &[])
        .unwrap();
    bench.step(Input::Topology(Arc::new(again)));
    bench.sync();
    assert!(bench.disk.entries.is_empty());
}

#[test]
fn an_unreadable_record_has_no_say_until_something_newer_replaces_it() {
    let mut bench = Bench::new();
    bench.ask(1, accept(ballot(1, 20)));
    bench.rot();
    let abstains = [Message::Abstain {
        tag: TAG,
        is_full: false,
    }];
    assert_eq!(bench.ask(1, prepare(ballot(1, 30))), abstains);
    assert_eq!(
        bench.reconciles,
        [(at(), true)],
        "and it asks to be repaired"
    );
    let learnt = Message::Learn {
        record: record(ballot(1, 19)),
    };
    bench.ask(1, learnt);
    assert_eq!(
        bench.disk.get(&at()),
        Lookup::Unreadable,
        "it may have held something newer"
    );
    let elsewhere = Message::Accept {
        tag: TAG,
        record: Record {
            digest: Digest([6; 16]),
            ..record(ballot(1, 25))
        },
        next: None,
    };
    bench.ask(1, elsewhere);
    let bound = refusal(&bench.ask(1, accept(ballot(1, 21))));
    assert!(bound.is_some(), "it may have held something newer");
    let above = ballot(1, 26);
    assert_eq!(
        bench.ask(1, accept(above)),
        [ACCEPTED],
        "nothing here was newer"
    );
    let next = Ballot {
        time: HybridTime(above.time.0 + 1),
        ..above
    };
    let answer = bench.ask(1, prepare(next));
    assert!(is_promise(&answer), "{answer:?}");
}

#[test]
fn after_a_collection_a_late_message_revives_nothing() {
    let mut bench = Bench::new();
    let upto = ballot(1, 50);
    let asked = bench.ask(1, Message::GcFloor { upto });
    assert!(matches!(asked[..], [Message::GcSum { .. }]));
    assert!(
        refusal(&bench.ask(1, accept(ballot(1, 40)))).is_some(),
        "below the floor"
    );
    bench.ask(1, Message::GcPurge { upto });
    let mut tombstone = record(ballot(1, 40));
    tombstone.state = State::Tombstone;
    bench.ask(1, Message::Learn { record: tombstone });
    let value = record(ballot(1, 39));
    bench.ask(1, Message::Learn { record: value });
    assert!(
        bench.disk.entries.is_empty(),
        "neither the tombstone nor the value comes back"
    );
    let read = Message::Read {
        tag: TAG,
        at: at(),
        want_value: true,
        closes: Ballot::default(),
    };
    let answer = bench.ask(1, read);
    let [Message::Holding { held, .. }] = &answer[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(held.content, Content::Absent);
    assert_eq!(held.collected, upto, "absence has a version");
}

fn store(ballot: Ballot) -> Message {
    let record = record(ballot);
    Message::Store { tag: TAG, record }
}

#[test]
fn a_store_is_confirmed_if_it_or_something_newer_is_there_and_only_then() {
    let mut bench = Bench::new();
    let confirmed = |sent: &[Message]| matches!(sent, [Message::Accepted { tag: TAG }]);
    assert!(bench.hear(1, store(ballot(1, 40))).is_empty(), "not yet");
    bench.sync();
    assert!(confirmed(&std::mem::take(&mut bench.sent)));
    assert!(confirmed(&bench.ask(1, store(ballot(1, 30)))), "older");
    let held = bench.disk.get(&at());
    assert_eq!(held, Lookup::Found(record(ballot(1, 40))));
    bench.ask(1, prepare(ballot(1, 90)));
    let below_a_promise = bench.ask(1, store(ballot(1, 60)));
    assert!(confirmed(&below_a_promise), "promises are of registers");
}

#[test]
fn between_floor_and_purge_what_no_replica_had_is_refused_and_what_one_holds_is_not() {
    let mut bench = Bench::new();
    let upto = ballot(1, 50);
    bench.ask(1, Message::GcFloor { upto });
    assert_eq!(refusal(&bench.ask(1, store(ballot(1, 40)))), Some(upto));
    assert!(bench.disk.entries.is_empty());
    let mut bench = bench.restart();
    bench.topology(&[ME, PEER, NodeId(3)], 1);
    assert_eq!(
        refusal(&bench.ask(1, store(ballot(1, 40)))),
        Some(upto),
        "durably"
    );
    let repair = |ms, collected| Message::Repair {
        record: record(ballot(1, ms)),
        collected,
        closed: Ballot::default(),
    };
    bench.ask(1, repair(40, Ballot::default()));
    let held = bench.disk.get(&at());
    assert_eq!(held, Lookup::Found(record(ballot(1, 40))));

    bench.disk.entries.clear();
    bench.ask(1, Message::GcPurge { upto });
    bench.ask(1, repair(40, Ballot::default()));
    assert!(
        bench.disk.entries.is_empty(),
        "its holder may not know that it was deleted"
    );
    bench.ask(1, repair(40, upto));
    assert_eq!(bench.disk.entries.len(), 1, "its holder knows");
}

#[test]
fn below_where_it_is_closed_a_replica_vouches_for_no_write_whatever_it_holds() {
    let mut bench = Bench::new();
    bench.ask(1, store(ballot(1, 40)));
    bench.ask(
        1,
        Message::GcFloor {
            upto: ballot(1, 50),
        },
    );
    bench.ask(1, store(ballot(1, 60)));
    let own = ballot(1, 40);
    let told = bench.ask(1, store(own));
    assert_eq!(refusal(&told), Some(own), "it may be here");
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
    let (seq, batch) = bench.disk.queue.remove(0);
    bench.disk.meta = batch.meta.unwrap_or(bench.disk.meta);
    bench.durable = seq;
    bench.hear(1, Message::GcFloor { upto });
    bench.step(Input::Persisted(seq));
    assert_eq!(bench.replica.first_expiry_ms(), 2_000);
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

#[test]
fn an_unreadable_record_gives_way_to_a_later_store_and_to_a_repair() {
    let unreadable = || {
        let mut bench = Bench::new();
        bench.ask(1, store(ballot(1, 40)));
        bench.rot();
        bench
    };
    let mut bench = unreadable();
    let earlier = bench.ask(1, store(ballot(1, 41)));
    assert!(matches!(
        earlier[..],
        [Message::Abstain {
            tag: TAG,
            is_full: false
        }]
    ));
    assert_eq!(bench.reconciles, [(at(), true)]);
    let repair = |closed| Message::Repair {
        record: record(ballot(1, 40)),
        collected: Ballot::default(),
        closed,
    };
    bench.ask(1, repair(Ballot::default()));
    let held = bench.disk.get(&at());
    assert_eq!(
        held,
        Lookup::Unreadable,
        "it may be older than what was here"
    );
    let closing = |closes| Message::Read {
        tag: TAG,
        at: at(),
        want_value: true,
        closes,
    };
    let too_low = bench.ask(1, closing(ballot(1, 39)));
    assert_eq!(refusal(&too_low), Some(ballot(1, 40)));
    let closed = ballot(1, 50);
    let closing = bench.ask(1, closing(closed));
    assert!(matches!(
        closing[..],
        [Message::Abstain {
            tag: TAG,
            is_full: false
        }]
    ));
    bench.ask(1, repair(ballot(1, 49)));
    let held = bench.disk.get(&at());
    assert_eq!(held, Lookup::Unreadable, "of another round");
    bench.ask(1, repair(closed));
    let held = bench.disk.get(&at());
    assert_eq!(held, Lookup::Found(record(ballot(1, 40))));
    let mut bench = unreadable();
    let later = bench.ask(1, store(ballot(1, 1_400)));
    assert!(matches!(later[..], [Message::Accepted { tag: TAG }]));
}

#[test]
fn a_ballot_from_a_clock_far_ahead_gets_no_answer() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(1, prepare(ballot(1, 3_600_000))), []);
    assert!(
        is_promise(&bench.ask(1, prepare(ballot(1, 1_200)))),
        "within the tolerance"
    );
}

#[test]
fn a_next_ballot_from_a_clock_far_ahead_is_not_promised() {
    let mut bench = Bench::new();
    let ahead = Message::Accept {
        tag: TAG,
        record: record(ballot(1, 1_100)),
        next: Some(ballot(1, 3_600_000)),
    };
    assert_eq!(bench.ask(1, ahead), [], "as if it had been lost");
    assert!(
        is_promise(&bench.ask(1, prepare(ballot(1, 1_200)))),
        "others go on"
    );
}

#[test]
fn an_accept_without_a_next_ballot_leaves_no_promise() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(1, accept(ballot(1, 20))), [ACCEPTED]);
    assert_eq!(bench.replica.promises.get(at().id()), Ballot::default());
    assert!(is_promise(&bench.ask(1, prepare(ballot(1, 21)))));
}

#[test]
fn two_keys_of_one_digest_on_their_way_to_the_disk_answer_each_its_own() {
    let mut bench = Bench::new();
    let other = Record {
        key: Key::new(&b"another"[..]).unwrap(),
        ..record(ballot(1, 30))
    };
    bench.ask(1, prepare(ballot(1, 20)));
    bench.hear(1, accept(ballot(1, 20)));
    let both = Message::Accept {
        tag: TAG,
        record: other.clone(),
        next: None,
    };
    bench.hear(1, both);
    for (at, expected) in [(at(), ballot(1, 20)), (Locator::of(&other), other.ballot)] {
        let register = bench.replica.register(&at, &bench.disk);
        let Lookup::Found(found) = register.lookup else {
            panic!("{at:?} is overlooked");
        };
        assert_eq!((Locator::of(&found), found.ballot), (at, expected));
    }
    let third = Locator {
        key: Key::new(&b"third"[..]).unwrap(),
        ..at()
    };
    let register = bench.replica.register(&third, &bench.disk);
    assert_eq!(register.lookup, Lookup::Absent, "nobody wrote it");
    bench.sync();
    assert_eq!(bench.disk.entries.len(), 2);
}

#[test]
fn the_only_reader_answers_from_its_disk_while_it_is_that() {
    let mut bench = Bench::new();
    assert_eq!(bench.replica.reads_alone(), None, "three read");
    bench.topology(&[ME], 2);
    assert_eq!(bench.replica.reads_alone(), None, "not durable yet");
    bench.sync();
    assert_eq!(bench.replica.reads_alone(), Some(Epoch(2)));
    let now = Now {
        elapsed_ms: 0,
        unix_ms: 1_000,
    };
    let zero = HybridTime::default();
    let alone = |lookup| Replica::alone(lookup, now, zero, Mutations::NONE);
    let absent = Some(Outcome::Absent { fast: true });
    assert_eq!(alone(Lookup::Absent), absent);
    assert_eq!(alone(Lookup::Unreadable), None, "others may know");
    let mut expired = record(ballot(2, 10));
    let found = alone(Lookup::Found(expired.clone()));
    assert!(matches!(found, Some(Outcome::Found { version, .. }) if version == expired.ballot));
    expired.state = State::Value {
        value: Bytes::new(),
        expires_at_ms: Some(1_000),
    };
    assert_eq!(alone(Lookup::Found(expired)), None, "it must stay absent");
    bench.topology(&[ME, PEER], 3);
    assert_eq!(bench.replica.reads_alone(), None, "another one reads too");
}

#[test]
fn a_newcomer_stores_nothing_of_earlier_epochs_until_its_copy_is_complete() {
    let copying = Config::founded(Partition(0), Epoch(1), &[PEER, NodeId(3), NodeId(4)])
        .begin(Epoch(2), &[PEER, NodeId(3), ME], &[])
        .unwrap();
    let mut bench = Bench::over(Disk::default());
    bench.step(Input::Topology(Arc::new(copying.clone())));
    bench.sync();
    let epoch = Epoch(2);
    bench.step(Input::NoSlices { epoch });
    let complete = Message::Page {
        tag: Tag::default(),
        after: None,
        records: Vec::new(),
        next: None,
        collected: Ballot::default(),
        collecting: Ballot::default(),
    };
    let from = NodeId(4);
    let page = |epoch| Input::Message {
        from,
        envelope: Envelope {
            partition: Partition(0),
            epoch: Epoch(epoch),
            message: complete.clone(),
        },
    };
    bench.step(page(2));
    let abstains = [Message::Abstain {
        tag: TAG,
        is_full: false,
    }];
    bench.sent.clear();
    assert_eq!(
        bench.ask(2, store(ballot(1, 40))),
        abstains,
        "it has the bulk"
    );
    let both = copying.advance(Epoch(3), Mutations::NONE).unwrap();
    bench.step(Input::Topology(Arc::new(both.clone())));
    bench.sync();
    bench.sent.clear();
    assert_eq!(bench.ask(3, store(ballot(1, 40))), abstains, "it copies");
    let mut bench = bench.restart();
    assert_eq!(bench.ask(3, store(ballot(2, 42))), abstains, "which stage?");
    bench.step(Input::Topology(Arc::new(both)));
    bench.step(page(3));
    bench.sync();
    bench.sent.clear();
    assert_eq!(bench.ask(3, store(ballot(2, 42))), [ACCEPTED], "complete");
    assert_eq!(bench.ask(3, store(ballot(3, 43))), [ACCEPTED]);
}

#[test]
fn a_message_whose_key_is_not_at_hand_is_handled_once_it_was_fetched_and_in_its_epoch_only() {
    let mut bench = Bench::new();
    bench.ask(1, accept(ballot(1, 900)));
    bench.disk.is_far = true;
    let read = Message::Read {
        tag: TAG,
        at: at(),
        want_value: true,
        closes: Ballot::default(),
    };
    assert_eq!(
        bench.hear(1, read.clone()),
        [],
        "it would wait for the disk"
    );
    assert_eq!(bench.hear(1, read), []);
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

//! Scripts for operations of `eventual` namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot};
use torc_ring::Partition;

use super::super::{CoordinatorOptions, OutOfReach, Rules};
use super::*;
use crate::{Config, Envelope, Held, Hint, Locator, Mutations, Tag};
use torc_record::Condition;

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn config() -> Arc<Config> {
    Arc::new(Config::founded(Partition(0), Epoch(1), &NODES))
}

fn ballot(time: u64) -> Ballot {
    Ballot {
        epoch: Epoch(1),
        time: HybridTime(time),
        slot: NodeSlot(0),
    }
}

fn held(time: u64) -> Held {
    Held {
        origin: None,
        ballot: ballot(time),
        content: Content::Value {
            expires_at_ms: None,
            value: Some(Bytes::from_static(b"v")),
        },
        collected: Ballot::default(),
        collecting: Ballot::default(),
    }
}

#[test]
fn a_write_is_done_when_as_many_as_asked_have_stored_it() {
    let record = Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest([1; 16]),
        key: Key::new(&b"k"[..]).unwrap(),
        origin: None,
        ballot: ballot(1),
        state: torc_record::State::Tombstone,
    };
    let moving = config().begin(Epoch(2), &[NODES[0], NODES[1], NodeId(4)], &[]);
    let both = moving
        .and_then(|c| c.advance(Epoch(3), crate::Mutations::NONE))
        .unwrap();
    let new = |config: Arc<Config>| {
        EventualWrite::new(
            config,
            Tag::default(),
            record.clone(),
            Quorum::Majority,
            Mutations::NONE,
        )
    };
    let mut write = new(config());
    assert!(!write.on_stored(NODES[0]));
    assert!(!write.on_stored(NODES[0]), "the same replica counts once");
    assert!(!write.on_stored(NodeId(9)), "a stranger does not count");
    assert!(write.on_stored(NODES[2]));
    assert_eq!(write.missing().collect::<Vec<_>>(), [NODES[1]]);

    let mut write = new(Arc::new(both));
    assert_eq!(write.sends().len(), 4, "both sets are asked");
    write.on_stored(NODES[0]);
    assert!(
        !write.on_stored(NODES[2]),
        "one of the new set is no majority"
    );
    assert!(write.on_stored(NodeId(4)));
}

#[test]
fn a_read_returns_the_newest_of_enough_answers_and_names_the_others() {
    let mut read = EventualRead::new(config(), Quorum::Majority, Mutations::NONE);
    assert_eq!(
        read.on_holding(NODES[0], held(5)),
        None,
        "one is not enough"
    );
    let newest = read.on_holding(NODES[1], held(7)).map(|held| held.ballot);
    assert_eq!(newest, Some(ballot(7)));
    assert_eq!(read.behind().collect::<Vec<_>>(), [NODES[0]]);
}

#[test]
fn what_was_held_before_a_collection_does_not_count_beside_nothing_after_it() {
    let mut read = EventualRead::new(config(), Quorum::Majority, Mutations::NONE);
    read.on_holding(NODES[0], held(5));
    let nothing = || Held {
        ballot: Ballot::default(),
        content: Content::Absent,
        collected: ballot(8),
        ..held(0)
    };
    assert_eq!(read.on_holding(NODES[1], nothing()), None);
    let asked: Vec<_> = read.missing().collect();
    assert_eq!(asked, [NODES[0], NODES[2]], "it is asked again");
    let newest = read.on_holding(NODES[2], nothing());
    assert_eq!(newest.map(|held| &held.content), Some(&Content::Absent));
}

#[test]
fn a_repaired_replica_is_closed_where_it_was_and_the_latest_time_counts() {
    let mut read = EventualRead::new(config(), Quorum::Majority, Mutations::NONE);
    let closed = |epoch, ms| Ballot {
        epoch: Epoch(epoch),
        time: HybridTime::from_unix_ms(ms),
        slot: NodeSlot(0),
    };
    read.on_holding(
        NODES[0],
        Held {
            collecting: closed(3, 10),
            ..held(5)
        },
    );
    read.on_holding(
        NODES[1],
        Held {
            collecting: closed(1, 90),
            ..held(7)
        },
    );
    let at = Locator {
        namespace: NamespaceId::DEFAULT,
        digest: Digest([1; 16]),
        key: Key::new(&b"k"[..]).unwrap(),
    };
    assert_eq!(read.repairs(&at, &[], Ballot::default()).len(), 1);
    assert!(
        !read.agrees_on_expiry(50),
        "one of two is closed up to there"
    );
    assert_eq!(read.collecting().unix_ms(), 90);
}

/// A coordinator and its intents.
struct Bench {
    coordinator: Coordinator,
    ms: u64,
    out: Vec<Intent>,
}

const OP: OpId = OpId(7);

impl Bench {
    fn start(request: Request, quorum: Quorum) -> Self {
        let options = CoordinatorOptions {
            near: Some(NODES[1]),
            ..CoordinatorOptions::default()
        };
        let ceiling = HybridTime::default();
        let coordinator = Coordinator::new(NodeSlot(0), ceiling, options, Mutations::NONE);
        let (ms, out) = (1_000, Vec::new());
        let mut bench = Self {
            coordinator,
            ms,
            out,
        };
        bench.configure(&config());
        let at = Locator {
            namespace: NamespaceId(2),
            digest: Digest([1; 16]),
            key: Key::new(&b"k"[..]).unwrap(),
        };
        let operation = Operation {
            partition: Partition(0),
            at,
            rules: Rules::Eventual(quorum),
            request,
            deadline_ms: bench.ms + 500,
        };
        let now = bench.now();
        bench.coordinator.start(now, OP, operation, &mut bench.out);
        let reserve = bench.take();
        let [Intent::Reserve(ceiling)] = reserve[..] else {
            panic!("no ballot before its time is reserved: {reserve:?}");
        };
        bench.coordinator.reserved(now, ceiling, &mut bench.out);
        bench
    }

    fn now(&self) -> Now {
        Now {
            elapsed_ms: self.ms,
            unix_ms: self.ms,
        }
    }

    fn configure(&mut self, config: &Arc<Config>) {
        let now = self.now();
        self.coordinator.on_topology(now, config, &mut self.out);
    }

    fn take(&mut self) -> Vec<Intent> {
        std::mem::take(&mut self.out)
    }

    /// The receivers of the messages sent, and the last message.
    fn sent(&mut self) -> (Vec<NodeId>, Envelope) {
        let mut last = None;
        let mut to = Vec::new();
        for intent in self.take() {
            if let Intent::Send { to: node, envelope } = intent {
                to.push(node);
                last = Some(envelope);
            }
        }
        (to, last.expect("something is sent"))
    }

    fn hear(&mut self, from: NodeId, epoch: u64, message: Message) -> Vec<Intent> {
        let (now, partition, epoch) = (self.now(), Partition(0), Epoch(epoch));
        let envelope = Envelope {
            partition,
            epoch,
            message,
        };
        self.coordinator
            .on_message(now, from, envelope, &mut self.out);
        self.take()
    }

    fn pass(&mut self, ms: u64) -> Vec<Intent> {
        self.ms += ms;
        let now = self.now();
        self.coordinator.tick(now, &mut self.out);
        self.take()
    }
}

fn write(quorum: Quorum) -> Bench {
    let delete = Request::Delete {
        condition: None,
        tells_existed: false,
    };
    Bench::start(delete, quorum)
}

fn stored(envelope: &Envelope) -> (Tag, Record) {
    let Message::Store { tag, record } = envelope.message.clone() else {
        panic!("{envelope:?}");
    };
    (tag, record)
}

fn done(outcome: Outcome) -> Intent {
    Intent::Done { op: OP, outcome }
}

#[test]
fn an_answered_write_leaves_a_hint_for_who_has_not_confirmed() {
    let mut bench = write(Quorum::Majority);
    let (to, envelope) = bench.sent();
    assert_eq!(to, NODES);
    let (tag, record) = stored(&envelope);
    let accepted = || Message::Accepted { tag };
    assert_eq!(bench.hear(NODES[0], 1, accepted()), []);
    let version = record.ballot;
    let answer = bench.hear(NODES[2], 1, accepted());
    let fast = true;
    assert_eq!(
        answer,
        [done(Outcome::Written {
            version,
            fast,
            existed: true
        })]
    );
    assert_eq!(bench.pass(100), [], "the last one has some time left");
    let to = NODES[1];
    assert_eq!(bench.pass(2_000), [Intent::Keep(Hint { to, record })]);
    assert_eq!(bench.coordinator.pending(), 0);
}

#[test]
fn a_write_is_sent_again_in_a_later_epoch_under_the_same_ballot_and_is_unknown_in_the_end() {
    let mut bench = write(Quorum::All);
    let (tag, record) = stored(&bench.sent().1);
    assert_eq!(bench.hear(NODES[0], 1, Message::Accepted { tag }), []);
    let (partition, epoch) = (Partition(0), Epoch(2));
    assert_eq!(
        bench.hear(NODES[1], 2, Message::Epoch { tag }),
        [Intent::NeedTopology { partition, epoch }]
    );
    let later = config().begin(Epoch(2), &[NODES[0], NODES[1], NodeId(4)], &[]);
    bench.configure(&Arc::new(later.unwrap()));
    let (to, envelope) = bench.sent();
    assert_eq!((to, envelope.epoch), (NODES.to_vec(), Epoch(2)));
    let (again, same) = stored(&envelope);
    assert_eq!(same, record);
    assert_ne!(
        again.round, tag.round,
        "late answers are known for what they are"
    );
    for node in NODES {
        bench.hear(node, 2, Message::Epoch { tag: again });
    }
    let end = bench.pass(500);
    assert_eq!(end[0], done(Outcome::Unknown), "one has stored it");
}

#[test]
fn a_write_that_nobody_took_is_unavailable_and_leaves_nothing() {
    let mut bench = write(Quorum::Majority);
    let (tag, record) = stored(&bench.sent().1);
    let nack = || Message::Nack {
        tag,
        highest: ballot(u64::MAX),
    };
    assert!(record.ballot < ballot(u64::MAX));
    bench.hear(
        NODES[1],
        1,
        Message::Abstain {
            tag,
            is_full: false,
        },
    );
    assert_eq!(bench.hear(NODES[0], 1, nack()), []);
    let end = bench.hear(NODES[2], 1, nack());
    assert_eq!(end, [done(Outcome::Unavailable)]);
    assert_eq!(bench.pass(3_000), []);
}

#[test]
fn who_declines_a_write_may_have_stored_it_when_asked_before() {
    let mut bench = write(Quorum::All);
    bench.sent();
    let again = bench.pass(50);
    assert_eq!(again.len(), 3, "nobody has answered: {again:?}");
    let Intent::Send { envelope, .. } = &again[0] else {
        panic!("{again:?}");
    };
    let (tag, record) = stored(envelope);
    let highest = Ballot {
        time: HybridTime(u64::MAX),
        ..record.ballot
    };
    let nack = Message::Nack { tag, highest };
    assert_eq!(
        bench.hear(NODES[1], 1, nack.clone())[0],
        done(Outcome::Unknown)
    );

    let mut bench = write(Quorum::Majority);
    let (tag, record) = stored(&bench.sent().1);
    let nack = |highest| Message::Nack { tag, highest };
    let own = record.ballot;
    bench.hear(
        NODES[0],
        1,
        nack(Ballot {
            time: HybridTime(u64::MAX),
            ..own
        }),
    );
    bench.hear(
        NODES[1],
        1,
        Message::Abstain {
            tag,
            is_full: false,
        },
    );
    let end = bench.hear(NODES[2], 1, nack(own));
    assert_eq!(
        end[0],
        done(Outcome::Unknown),
        "it names the write's own ballot"
    );
}

#[test]
fn a_write_that_too_few_replicas_have_space_for_ends_at_once_unless_it_may_be_stored() {
    for (first, outcome) in [(true, Outcome::OutOfSpace), (false, Outcome::Unknown)] {
        let mut bench = write(Quorum::Majority);
        let (tag, _) = stored(&bench.sent().1);
        let full = || Message::Abstain { tag, is_full: true };
        bench.hear(NODES[1], 1, full());
        bench.hear(NODES[2], 1, full());
        let last = if first {
            full()
        } else {
            Message::Accepted { tag }
        };
        let mut said = bench.hear(NODES[0], 1, last);
        if !first {
            assert_eq!(
                said,
                [],
                "one has stored it; the others may have space soon"
            );
            said = bench.pass(30_000);
        }
        assert_eq!(said[0], done(outcome));
    }
}

/// Each kept its place until its deadline, and partitions with a quorum waited.
#[test]
fn what_lacks_a_quorum_ends_at_once_unless_it_may_be_stored() {
    let out_of_reach = || {
        let lost = [NODES[0], NODES[2]].into();
        OutOfReach {
            silent: BTreeSet::clone(&lost),
            lost,
        }
    };
    let again = || Operation {
        partition: Partition(0),
        at: Locator {
            namespace: NamespaceId(2),
            digest: Digest([2; 16]),
            key: Key::new(&b"k2"[..]).unwrap(),
        },
        rules: Rules::Eventual(Quorum::Majority),
        request: Request::Get,
        deadline_ms: 60_000,
    };
    let mut bench = Bench::start(Request::Get, Quorum::Majority);
    bench.take();
    bench.coordinator.on_peers(&out_of_reach());
    assert_eq!(bench.pass(50), [done(Outcome::Unavailable)]);
    let now = bench.now();
    let mut out = Vec::new();
    bench.coordinator.start(now, OpId(8), again(), &mut out);
    let (op, outcome) = (OpId(8), Outcome::Unavailable);
    assert_eq!(out, [Intent::Done { op, outcome }], "nobody was asked");

    let mut bench = Bench::start(Request::Get, Quorum::One);
    assert_eq!(bench.sent().0, [NODES[1]]);
    bench.coordinator.on_peers(&out_of_reach());
    let again = bench.pass(50);
    assert_eq!(again.len(), 3, "one is within reach: {again:?}");

    let mut bench = write(Quorum::Majority);
    let (tag, _) = stored(&bench.sent().1);
    bench.coordinator.on_peers(&out_of_reach());
    assert_eq!(
        bench.pass(50).len(),
        3,
        "it may be stored: all are asked again"
    );
    bench.coordinator.on_peers(&OutOfReach::default());
    bench.hear(NODES[0], 1, Message::Accepted { tag });
    let answer = bench.hear(NODES[1], 1, Message::Accepted { tag });
    assert!(matches!(
        answer[..],
        [Intent::Done {
            outcome: Outcome::Written { .. },
            ..
        }]
    ));
}

#[test]
fn a_read_repairs_who_answers_late_too_and_one_is_asked_near_by() {
    let mut bench = Bench::start(Request::Get, Quorum::Majority);
    let (to, envelope) = bench.sent();
    assert_eq!(to, NODES);
    let Message::Read { tag, .. } = envelope.message else {
        panic!("{envelope:?}");
    };
    let holding = |time| Message::Holding {
        tag,
        held: held(time),
    };
    bench.hear(NODES[0], 1, holding(7));
    let answer = bench.hear(NODES[1], 1, holding(7));
    assert_eq!(answer.len(), 1, "{answer:?}");
    let repair = bench.hear(NODES[2], 1, holding(5));
    let [Intent::Send { to, envelope }] = &repair[..] else {
        panic!("{repair:?}");
    };
    let is_newest = |record: &Record| record.ballot == ballot(7);
    assert!(matches!(&envelope.message, Message::Repair { record, .. } if is_newest(record)));
    assert_eq!((*to, bench.coordinator.pending()), (NODES[2], 0));

    let mut bench = Bench::start(Request::Get, Quorum::One);
    assert_eq!(bench.sent().0, [NODES[1]], "the one on this node");
    bench.ms += 60;
    let now = bench.now();
    bench.coordinator.tick(now, &mut bench.out);
    assert_eq!(bench.sent().0, NODES, "it is slow");
}

#[test]
fn a_conditional_write_is_refused_and_an_abandoned_one_leaves_its_hints() {
    let conditional = Request::Put {
        value: Bytes::from_static(b"v"),
        expires_at_ms: None,
        condition: Some(Condition::IfAbsent),
    };
    let config = Arc::new(Config::founded(Partition(0), Epoch(1), &NODES));
    let mut bench = write(Quorum::Majority);
    let (_, record) = stored(&bench.sent().1);
    let operation = Operation {
        partition: config.partition,
        at: Locator::of(&record),
        rules: Rules::Eventual(Quorum::Majority),
        request: conditional,
        deadline_ms: bench.ms + 500,
    };
    let now = bench.now();
    bench
        .coordinator
        .start(now, OpId(8), operation, &mut bench.out);
    let outcome = Outcome::Refused;
    assert_eq!(
        bench.take(),
        [Intent::Done {
            op: OpId(8),
            outcome
        }]
    );
    bench.coordinator.abandon(now, OP, &mut bench.out);
    assert_eq!(bench.take(), [], "it is not answered");
    let hints = bench.pass(2_000);
    assert_eq!(hints.len(), 3, "it may be stored somewhere: {hints:?}");
    assert_eq!(bench.coordinator.pending(), 0);
}

#[test]
fn who_cannot_read_what_is_nowhere_else_is_given_a_tombstone_by_a_majority() {
    let absent = || Held {
        ballot: Ballot::default(),
        content: Content::Absent,
        ..held(0)
    };
    let mut bench = Bench::start(Request::Reconcile { rewrite: true }, Quorum::Majority);
    let Message::Read { tag, .. } = bench.sent().1.message else {
        panic!("everybody is asked");
    };
    let holding = |held| Message::Holding { tag, held };
    bench.hear(
        NODES[0],
        1,
        Message::Abstain {
            tag,
            is_full: false,
        },
    );
    bench.hear(NODES[1], 1, holding(absent()));
    let told = bench.hear(NODES[2], 1, holding(absent()));
    let [Intent::Send { to, envelope }, Intent::Done { .. }] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(*to, NODES[0]);
    let Message::Repair { record, .. } = &envelope.message else {
        panic!("{envelope:?}");
    };
    assert_eq!(record.state, torc_record::State::Tombstone);
    assert!(record.ballot > Ballot::default() && record.ballot < ballot(1));
}

#[test]
fn a_reconcile_brings_a_newcomer_that_writes_already_what_it_cannot_read() {
    let moving = config().begin(Epoch(2), &[NODES[0], NODES[1], NodeId(4)], &[]);
    let both = moving
        .and_then(|c| c.advance(Epoch(3), crate::Mutations::NONE))
        .unwrap();
    let mut bench = Bench::start(Request::Reconcile { rewrite: true }, Quorum::Majority);
    bench.take();
    bench.configure(&Arc::new(both));
    let (to, envelope) = bench.sent();
    assert_eq!(to, [NODES[0], NODES[1], NODES[2], NodeId(4)]);
    let Message::Read { tag, .. } = envelope.message else {
        panic!("{envelope:?}");
    };
    for node in NODES {
        let held = held(7);
        assert_eq!(bench.hear(node, 3, Message::Holding { tag, held }), []);
    }
    let told = bench.hear(
        NodeId(4),
        3,
        Message::Abstain {
            tag,
            is_full: false,
        },
    );
    let is_repair = matches!(&told[0], Intent::Send { to, .. } if *to == NodeId(4));
    assert!(is_repair, "{told:?}");
}

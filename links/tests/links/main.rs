//! Links between nodes, over real sockets.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "tests count small numbers"
)]
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod nodes;

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::stream;
use tonic::Code;
use torc_links::{DropReason, Parcel};
use torc_proto::link::{LinkHello, push_envelope};
use torc_proto::v1::LinkRequest;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::{Fault, Reason};
use torc_record::{Ballot, Digest, HybridTime, Key, NamespaceId, Record, State};
use torc_replication::{Envelope, Message, OpId, Tag};
use torc_ring::topology::{Boot, ClusterId, Incarnation, Levels};
use torc_ring::{NodeId, Partition};

use nodes::{BOOT, CLUSTER, Members, Node, Setup, envelope, incarnation, message, until};

const MANY: u64 = 100_000;

fn write_at(time: HybridTime) -> Envelope {
    let Parcel { mut envelope, .. } = large_message(0);
    if let Message::Accept { record, .. } = &mut envelope.message {
        record.ballot.time = time;
    }
    envelope
}

/// A message with a number and 1 KiB of data.
fn large_message(number: u64) -> Parcel {
    let record = Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest([0; 16]),
        key: Key::new("key").unwrap(),
        ballot: Ballot::default(),
        origin: None,
        state: State::Value {
            value: vec![7; 1024].into(),
            expires_at_ms: None,
        },
    };
    let tag = Tag {
        op: OpId(number),
        ..Tag::default()
    };
    Envelope {
        partition: Partition(0),
        message: Message::Accept {
            tag,
            record,
            next: None,
        },
        ..envelope(number)
    }
    .into()
}

#[test]
fn when_nothing_fails_every_message_arrives_once_and_in_order() {
    let members = Members::default();
    let one = Node::start(1, &members, Setup::default());
    let two = Node::start(2, &members, Setup::default());
    for number in 0..MANY {
        one.links.send_all(two.id, vec![message(number)]);
        if number % 1000 == 0 {
            until("the queue is not full of bytes", || {
                one.metrics.queued_now() < 50_000
            });
        }
    }
    until("all arrived", || two.received() >= MANY as usize);
    assert!(two.received_from(one.id).into_iter().eq(0..MANY));
    assert!(one.metrics.batches_so_far() < MANY, "they went in batches");
    assert_eq!(one.metrics.connected_now(), 1);
}

#[test]
fn three_nodes_speak_to_each_other_each_way_over_a_stream() {
    const COUNT: u64 = 5_000;
    let members = Members::default();
    let nodes = [1, 2, 3].map(|id| Node::start(id, &members, Setup::default()));
    for number in 0..COUNT {
        for from in &nodes {
            for to in nodes.iter().filter(|to| to.id != from.id) {
                from.links.send_all(to.id, vec![message(number)]);
            }
        }
    }
    for to in &nodes {
        until("all arrived", || to.received() as u64 >= 2 * COUNT);
        for from in nodes.iter().filter(|from| from.id != to.id) {
            assert!(to.received_from(from.id).into_iter().eq(0..COUNT));
        }
        until("its own streams are open too", || {
            to.metrics.connected_now() == 2
        });
    }
}

/// The sender replaces its stream before the receiver must end it.
#[test]
fn a_stream_that_is_replaced_at_its_age_loses_nothing() {
    let members = Members::default();
    let setup = Setup {
        stream_age: Duration::from_millis(100),
        ..Setup::default()
    };
    let one = Node::start(1, &members, setup);
    let two = Node::start(2, &members, Setup::default());
    let mut sent = 0;
    until("streams were replaced under load", || {
        for _ in 0..100 {
            one.links.send_all(two.id, vec![message(sent)]);
            sent += 1;
        }
        two.opened() > 6
    });
    until("all arrived", || two.received() >= sent as usize);
    assert!(two.received_from(one.id).into_iter().eq(0..sent));
    assert_eq!(one.metrics.dropped_so_far(DropReason::Unreachable), 0);
}

#[test]
fn a_stream_that_the_receiver_ends_is_opened_again() {
    let members = Members::default();
    let one = Node::start(1, &members, Setup::default());
    let setup = Setup {
        stream_ends_after: Some(Duration::from_millis(100)),
        ..Setup::default()
    };
    let two = Node::start(2, &members, setup);
    let mut sent = 0;
    until("streams were ended", || {
        one.links.send_all(two.id, vec![message(sent)]);
        sent += 1;
        two.opened() > 5
    });
    let before = two.received();
    until("sending goes on", || {
        one.links.send_all(two.id, vec![message(sent)]);
        two.received() > before + 5
    });
}

#[test]
fn a_peer_that_was_killed_is_spoken_to_again_when_it_is_back() {
    let members = Members::default();
    let one = Node::start(1, &members, Setup::default());
    let two = Node::start(2, &members, Setup::default());
    let address = two.address;
    one.links.send_all(two.id, vec![message(0)]);
    until("the first arrived", || two.received() == 1);
    two.kill();
    until("the loss is noticed, and what is sent is dropped", || {
        one.links.send_all(NodeId(2), vec![message(1)]);
        one.metrics.dropped_so_far(DropReason::Unreachable) > 0
    });
    assert_eq!(one.metrics.connected_now(), 0);
    assert_eq!(one.metrics.queued_now(), 0, "nothing waits for the dead");
    let setup = Setup {
        address,
        ..Setup::default()
    };
    let two = Node::start(2, &members, setup);
    until("sending goes on by itself", || {
        one.links.send_all(two.id, vec![message(2)]);
        two.received() > 0
    });
}

#[test]
fn nothing_is_lost_on_the_way_to_and_from_a_peer_that_leaves() {
    const ANSWERS: u64 = 1_000;
    let members = Members::default();
    let one = Node::start(1, &members, Setup::default());
    let two = Node::start(2, &members, Setup::default());
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for sent in 0.. {
                let out = one.links.out_of_reach();
                if out.lost.contains(&two.id) {
                    one.links.noticed(&out);
                    return sent;
                }
                until("there is room", || one.metrics.queued_now() < 1_000);
                one.links.send_all(two.id, vec![message(sent)]);
            }
            unreachable!("it sends until the other leaves")
        });
        until("messages flow", || two.received() > 100);
        two.leave(async {
            let answers = (0..ANSWERS).map(message).collect::<Vec<_>>();
            two.links.send_all(one.id, answers);
        });
        let sent = sending.join().unwrap();
        assert!(two.received_from(one.id).into_iter().eq(0..sent));
        assert!(one.received_from(two.id).into_iter().eq(0..ANSWERS));
    });
    let dropped = |node: &Node| node.metrics.dropped_so_far(DropReason::Unreachable);
    assert_eq!((dropped(&one), dropped(&two)), (0, 0));
    let refused = speak(&two, hello(&one, &two), vec![]).unwrap_err();
    assert_eq!(refused.reason, Reason::NotServing, "{refused}");
}

#[test]
fn a_peer_is_followed_to_another_address_and_forgotten_when_it_leaves() {
    let members = Members::default();
    let one = Node::start(1, &members, Setup::default());
    let before = Node::start(2, &members, Setup::default());
    one.links.send_all(before.id, vec![message(0)]);
    until("the first arrived", || before.received() == 1);
    let after = Node::start(2, &members, Setup::default());
    until("it is spoken to where it is now", || {
        one.links.send_all(after.id, vec![message(1)]);
        after.received() > 0
    });
    members.lock().remove(&after.id);
    until("it is no member", || {
        one.links.send_all(after.id, vec![message(2)]);
        one.metrics.dropped_so_far(DropReason::NoAddress) > 0
    });
    until("its stream has ended", || one.metrics.connected_now() == 0);
}

/// A node may connect to a peer before its topology has the peer's start.
#[test]
fn a_stream_stays_when_the_directory_learns_of_its_start_and_ends_for_a_later_one() {
    let members = Members::default();
    let one = Node::start(1, &members, Setup::default());
    let two = Node::start(2, &members, Setup::default());
    let known = |number| {
        let mut members = members.lock();
        let draw = if number == BOOT.number { BOOT.draw } else { 1 };
        members.get_mut(&two.id).unwrap().boot = Some(Boot { number, draw });
    };
    known(BOOT.number - 1);
    one.links.send_all(two.id, vec![message(0)]);
    until("the first arrived", || two.received() == 1);
    known(BOOT.number);
    let before = one.looked();
    let mut sent = 1;
    // If the stream ends at one look, the next two are those before and after another one is opened.
    until("the sender has looked", || {
        one.links.send_all(two.id, vec![message(sent)]);
        sent += 1;
        one.looked() > before + 4
    });
    until("all arrived", || two.received() as u64 == sent);
    assert_eq!(two.opened(), 1, "it is the start that accepted the stream");
    known(BOOT.number + 1);
    until("nothing is sent to an earlier start", || {
        one.links.is_unreachable(two.id)
    });
}

#[test]
fn a_peer_that_does_not_read_fills_its_queue_and_nothing_else() {
    const LIMIT: usize = 1_000;
    let members = Members::default();
    let setup = Setup {
        queue_envelopes: LIMIT,
        ..Setup::default()
    };
    let one = Node::start(1, &members, setup);
    let deaf = Setup {
        permits: 0,
        ..Setup::default()
    };
    let two = Node::start(2, &members, deaf);
    let mut sent = 0;
    while one.metrics.dropped_so_far(DropReason::Full) < 10_000 {
        one.links.send_all(two.id, vec![large_message(sent)]);
        assert!(one.metrics.queued_now() <= LIMIT as i64);
        sent += 1;
    }
    assert_eq!(two.received(), 0);
    two.permits.add_permits(usize::MAX >> 8);
    let dropped = one.metrics.dropped_so_far(DropReason::Full);
    until("what was kept arrives", || {
        two.received() as u64 == sent - dropped
    });
    let received = two.received_from(one.id);
    assert!(received.is_sorted(), "in order");
    one.links.send_all(two.id, vec![message(sent)]);
    until("and it goes on", || {
        two.received_from(one.id).last() == Some(&sent)
    });
}

/// The greeting of a member.
fn hello(from: &Node, to: &Node) -> LinkHello {
    LinkHello {
        cluster: CLUSTER,
        node: from.id,
        incarnation: incarnation(from.id),
        target: to.id,
        boot: BOOT,
        levels: Levels::OURS,
        ceiling: HybridTime(u64::MAX),
    }
}

/// Without TLS an outsider can greet a node in a member's name.
#[test]
fn a_stream_in_a_members_name_does_not_end_the_members_own() {
    const STREAMS: usize = 20;
    let members = Members::default();
    let two = Node::start(2, &members, Setup::default());
    let one = Node::start(1, &members, Setup::default());
    let hello = hello(&one, &two);
    for number in 0..STREAMS {
        one.links.send_all(two.id, vec![message(number as u64)]);
        until("it arrived", || two.received() > number);
        assert_eq!(speak(&two, hello, Vec::new()), Ok(()));
    }
    let sent = STREAMS as u64;
    one.links.send_all(two.id, vec![message(sent)]);
    until("the last one arrived", || {
        two.received_from(one.id).last() == Some(&sent)
    });
    assert!(two.received_from(one.id).into_iter().eq(0..=sent));
    assert_eq!(two.opened(), STREAMS + 1, "the member needed no other");
}

/// Opens a stream with this greeting; returns its outcome.
fn speak(to: &Node, hello: LinkHello, then: Vec<LinkRequest>) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let address = format!("http://{}", to.address);
        let mut client = ReplicaClient::connect(address).await.unwrap();
        let mut requests = vec![hello.to_wire()];
        requests.extend(then);
        let faulty = |status: tonic::Status| Fault::from_status(&status);
        let answers = client.link(stream::iter(requests)).await;
        let mut answers = answers.map_err(faulty)?.into_inner();
        while answers.message().await.map_err(faulty)?.is_some() {}
        Ok(())
    })
}

#[test]
fn who_is_another_or_means_another_is_refused() {
    let members = Members::default();
    let two = Node::start(2, &members, Setup::default());
    let one = Node::start(1, &members, Setup::default());
    let good = hello(&one, &two);
    assert_eq!(speak(&two, good, Vec::new()), Ok(()));
    let bad = [
        LinkHello {
            cluster: ClusterId([1; 16]),
            ..good
        },
        LinkHello {
            target: NodeId(3),
            ..good
        },
        LinkHello {
            node: two.id,
            ..good
        },
        LinkHello {
            incarnation: Incarnation([7; 16]),
            ..good
        },
        LinkHello {
            levels: Levels {
                oldest: Levels::OURS.newest + 1,
                newest: Levels::OURS.newest + 2,
            },
            ..good
        },
        LinkHello {
            levels: Levels::default(),
            ..good
        },
    ];
    for hello in bad {
        let fault = speak(&two, hello, Vec::new()).unwrap_err();
        assert_eq!(fault.reason, Reason::Refused, "{fault:?}");
    }
    let unknown = LinkHello {
        node: NodeId(8),
        ..good
    };
    let fault = speak(&two, unknown, Vec::new()).unwrap_err();
    assert_eq!(fault.code(), Code::Unavailable, "{fault:?}");
    assert!(fault.is_retryable(), "it may be a member soon");
}

#[test]
fn a_start_that_a_later_one_has_outrun_is_refused_both_ways_and_told_so() {
    let members = Members::default();
    let two = Node::start(2, &members, Setup::default());
    let one = Node::start(1, &members, Setup::default());
    let hello = |number, draw| LinkHello {
        cluster: CLUSTER,
        node: one.id,
        incarnation: incarnation(one.id),
        target: two.id,
        boot: Boot { number, draw },
        levels: Levels::OURS,
        ceiling: HybridTime(u64::MAX),
    };
    let speaks = |number, draw| speak(&two, hello(number, draw), Vec::new());
    assert_eq!(
        speaks(4, 1),
        Ok(()),
        "the topology comes late: it knows of the start before"
    );
    for (number, draw) in [(BOOT.number, BOOT.draw), (4, 2), (2, 1)] {
        let fault = speaks(number, draw).unwrap_err();
        assert_eq!(fault.reason, Reason::Superseded, "{fault:?}");
    }
    one.links.send_all(two.id, vec![message(0)]);
    until("the older one knows it", || one.disowned.lock().is_some());
    let known = |boot| {
        let mut members = members.lock();
        members.get_mut(&one.id).unwrap().boot = Some(boot);
    };
    known(Boot { number: 5, draw: 5 });
    two.links.send_all(one.id, vec![message(0)]);
    until("nothing is sent to it", || two.links.is_unreachable(one.id));
    known(BOOT);
    until("it is sent to", || {
        one.received() > 0 || {
            two.links.send_all(one.id, vec![message(0)]);
            false
        }
    });
}

/// A copy of a running node's directory lacks what the node did afterwards, and no start tells it.
#[test]
fn a_later_start_that_does_not_know_of_a_ballot_it_sent_is_refused() {
    let members = Members::default();
    let two = Node::start(2, &members, Setup::default());
    let one = Node::start(1, &members, Setup::default());
    let greet = |number, ceiling| LinkHello {
        boot: Boot { number, draw: 1 },
        ceiling: HybridTime(ceiling),
        ..hello(&one, &two)
    };
    let mut batch = BytesMut::new();
    push_envelope(&mut batch, write_at(HybridTime(70)), None);
    let write = LinkRequest {
        hello: None,
        envelopes: batch.freeze(),
    };
    assert_eq!(speak(&two, greet(4, 60), vec![write]), Ok(()));
    let again = speak(&two, greet(4, 60), Vec::new());
    assert_eq!(again, Ok(()), "it is the same process");
    let fault = speak(&two, greet(5, 69), Vec::new()).unwrap_err();
    assert_eq!(fault.reason, Reason::Superseded, "{fault:?}");
    assert_eq!(speak(&two, greet(5, 70), Vec::new()), Ok(()));
    let fault = speak(&two, greet(6, 69), Vec::new()).unwrap_err();
    assert_eq!(fault.reason, Reason::Superseded, "{fault:?}");
}

#[test]
fn a_message_that_cannot_be_read_is_lost_alone_and_a_broken_batch_ends_the_stream() {
    let members = Members::default();
    let two = Node::start(2, &members, Setup::default());
    let one = Node::start(1, &members, Setup::default());
    let hello = LinkHello {
        cluster: CLUSTER,
        node: one.id,
        incarnation: incarnation(one.id),
        target: two.id,
        boot: BOOT,
        levels: Levels::OURS,
        ceiling: HybridTime(u64::MAX),
    };
    let mut batch = BytesMut::from(&[1, 0xff][..]);
    let elsewhere = Envelope {
        partition: Partition(4096 * 8),
        ..envelope(0)
    };
    push_envelope(&mut batch, elsewhere, None);
    push_envelope(&mut batch, envelope(5), None);
    let request = |envelopes| LinkRequest {
        hello: None,
        envelopes,
    };
    assert_eq!(speak(&two, hello, vec![request(batch.freeze())]), Ok(()));
    assert_eq!(two.received_from(one.id), [5]);
    assert_eq!(two.metrics.dropped_so_far(DropReason::Malformed), 2);
    let broken = request(Bytes::from_static(&[200, 1, 0]));
    let fault = speak(&two, hello, vec![broken]).unwrap_err();
    assert_eq!(fault.reason, Reason::Invalid, "{fault:?}");
}

#[test]
fn a_link_is_cut_one_way_and_mended_by_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("faults.json");
    let cut = |text: &str| {
        let beside = dir.path().join("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, &file).unwrap();
    };
    let members = Members::default();
    let setup = Setup {
        faults_file: Some(file.clone()),
        ..Setup::default()
    };
    let one = Node::start(1, &members, setup);
    let two = Node::start(2, &members, Setup::default());
    let reaches = |from: &Node, to: &Node| {
        until("a message arrives", || {
            let before = to.received();
            from.links.send_all(to.id, vec![message(0)]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            to.received() > before
        });
    };
    let is_cut = |from: &Node, to: &Node| {
        until("messages are dropped", || {
            let before = one.metrics.dropped_so_far(DropReason::Cut);
            from.links.send_all(to.id, vec![message(0)]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            one.metrics.dropped_so_far(DropReason::Cut) > before
        });
    };
    reaches(&one, &two);
    cut(r#"{"drop_to": [2]}"#);
    is_cut(&one, &two);
    reaches(&two, &one);
    cut(r#"{"drop_from": [2]}"#);
    is_cut(&two, &one);
    reaches(&one, &two);
    cut(r#"{"delay_ms": {"2": 30}}"#);
    reaches(&one, &two);
    reaches(&two, &one);
}

/// A measurement, not a check: `cargo test --release -p torc-links --test links -- --ignored
/// --nocapture`.
#[test]
#[ignore = "measures"]
fn messages_a_second_over_one_stream() {
    for (name, count, make) in [
        ("accepted", 2_000_000, message as fn(u64) -> Parcel),
        ("accept of 1 KiB", 500_000, large_message),
    ] {
        let members = Members::default();
        let one = Node::start(1, &members, Setup::default());
        let two = Node::start(2, &members, Setup::default());
        one.links.send_all(two.id, vec![make(0)]);
        until("connected", || two.received() == 1);
        let begun = Instant::now();
        for number in 1..count {
            while one.metrics.queued_now() > 20_000 {
                std::thread::yield_now();
            }
            one.links.send_all(two.id, vec![make(number)]);
        }
        until("all arrived", || two.received() as u64 >= count);
        let seconds = begun.elapsed().as_secs_f64();
        let batches = one.metrics.batches_so_far();
        println!(
            "{name}: {:.0} messages/s, {:.0} a batch",
            count as f64 / seconds,
            count as f64 / batches as f64
        );
    }
}

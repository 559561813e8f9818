//! Scripts for operations of `eventual` namespaces.

use super::*;
use bytes::Bytes;
use torc_record::{Ballot, Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, State};
use torc_ring::Partition;

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
        ballot: ballot(1),
        state: State::Tombstone,
    };
    let moving = config().begin(Epoch(2), &[NODES[0], NODES[1], NodeId(4)], &[]);
    let both = moving
        .and_then(|c| c.advance(Epoch(3), crate::Mutations::NONE))
        .unwrap();
    let new = |config: Arc<Config>| {
        EventualWrite::new(config, Tag::default(), record.clone(), Quorum::Majority)
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
    let mut read = EventualRead::new(config(), Quorum::Majority);
    assert_eq!(
        read.on_holding(NODES[0], held(5)),
        None,
        "one is not enough"
    );
    let newest = read.on_holding(NODES[1], held(7)).map(|held| held.ballot);
    assert_eq!(newest, Some(ballot(7)));
    assert_eq!(read.behind().collect::<Vec<_>>(), [NODES[0]]);
}

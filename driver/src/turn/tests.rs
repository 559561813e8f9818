use super::*;
use crate::Wanted;
use crate::rig::{HERE, ME, Rig, record, until};
use std::time::{Duration, Instant};
use torc_record::{Ballot, Epoch, Record};
use torc_replication::{Claim, Hint, KeyId, Locator, Mutations, Quorum};
use torc_ring::Partitions;
use torc_store::fs::RealFs;
use torc_store::testing::CrashFs;

const SOURCE: NodeId = NodeId(2);

#[tokio::test]
async fn a_newcomer_without_room_for_a_page_takes_it_later_and_does_not_start_over() {
    let mut rig = Rig::start(|options| {
        options.memtable_limit_bytes = 1 << 20;
        options.flush_bytes_per_s = 1 << 20;
    });
    let founded = Config::founded(HERE, Epoch(1), &[SOURCE]);
    let copying = founded.begin(Epoch(2), &[ME], &[]).unwrap();
    let writing = copying.advance(Epoch(3), Mutations::NONE).unwrap();
    rig.adopt(&Arc::new(copying)).await;
    rig.adopt(&Arc::new(writing)).await;
    // Twice the limit of the memtable.
    let records: Vec<_> = (0..32).map(|at| record(at, vec![at; 64 << 10])).collect();
    let page = |at: usize| Parcel {
        trace: None,
        envelope: Envelope {
            partition: HERE,
            epoch: Epoch(3),
            message: Message::Page {
                tag: Tag::default(),
                after: at.checked_sub(1).map(|before| KeyId::of(&records[before])),
                records: vec![records[at].clone()],
                next: Some(KeyId::of(&records[at])),
                collected: Ballot::default(),
                collecting: Ballot::default(),
            },
        },
    };
    let registers = Arc::clone(&rig.registers);
    let is_stored = |at: &usize| {
        let found = registers.store.get(records[*at].locator());
        found.unwrap().is_some()
    };
    // The source answers repeated requests. The replica ignores pages that it does not expect.
    let copied = until("all pages are copied", || {
        let missing: Vec<_> = (0..records.len()).filter(|at| !is_stored(at)).collect();
        for at in &missing {
            registers.receive(SOURCE, vec![page(*at)]);
        }
        missing.is_empty()
    });
    rig.during(copied).await;
    let turn = registers.turn(HERE);
    let life = turn.known_slot(HERE).map(|slot| slot.life);
    assert_eq!(life, Some(0), "a lost batch would have restarted the copy");
}

#[tokio::test]
async fn a_replica_without_room_for_fetched_writes_declines_them_and_does_not_start_over() {
    let mut rig = Rig::start(|options| {
        options.memtable_limit_bytes = 1 << 20;
        options.flush_bytes_per_s = 1 << 20;
    });
    let founded = Config::founded(HERE, Epoch(2), &[ME]);
    rig.adopt(&Arc::new(founded)).await;
    // Twice the limit of the memtable.
    let records: Vec<_> = (0..32).map(|at| record(at, vec![at; 64 << 10])).collect();
    let registers = Arc::clone(&rig.registers);
    let is_stored = |record: &&Record| {
        let found = registers.store.get(record.locator());
        found.unwrap().is_some()
    };
    let mut has_declined = false;
    let stored = until("all writes are stored", || {
        let missing: Vec<_> = records.iter().filter(|it| !is_stored(it)).collect();
        for record in &missing {
            let tag = Tag::default();
            let record = Record::clone(record);
            let envelope = Envelope {
                partition: HERE,
                epoch: Epoch(2),
                message: Message::Store { tag, record },
            };
            let from = SOURCE;
            let mut turn = registers.turn(HERE);
            turn.step(HERE, Input::Fetched { from, envelope });
            let mut sent = turn.outbox.0.iter().flat_map(|(_, parcels)| parcels);
            has_declined |= sent.any(|it| matches!(it.envelope.message, Message::Abstain { .. }));
            turn.end();
        }
        missing.is_empty()
    });
    rig.during(stored).await;
    let turn = registers.turn(HERE);
    let life = turn.known_slot(HERE).map(|slot| slot.life);
    assert_eq!(life, Some(0), "a batch was lost");
    assert!(has_declined, "the memtable was never full");
}

#[tokio::test]
async fn a_replica_whose_epoch_the_disk_does_not_take_tries_again_at_the_next_tick_only() {
    let disk = CrashFs::new();
    let mut rig = Rig::on(Arc::new(disk.clone()), |options| {
        options.log_segment_bytes = 1024;
    });
    let registers = Arc::clone(&rig.registers);
    let slot = || {
        let turn = registers.turn(HERE);
        let slot = turn.known_slot(HERE).unwrap();
        (slot.life, slot.to_adopt().is_some())
    };
    disk.set_capacity(Some(disk.used_bytes()));
    let mut epoch = Epoch(1);
    registers.configure(&Arc::new(Config::founded(HERE, epoch, &[ME])));
    while slot().0 == 0 {
        rig.handle_one().await;
        if slot() == (0, false) && registers.config(HERE).is_some() {
            epoch.0 += 1;
            registers.configure(&Arc::new(Config::founded(HERE, epoch, &[ME])));
        }
    }
    for life in 1..4 {
        assert_eq!(slot(), (life, true), "nothing is on the way to the disk");
        registers.repeat();
        while slot().0 == life {
            rig.handle_one().await;
        }
    }
    disk.set_capacity(None);
    registers.repeat();
    let acts = || registers.config(HERE).is_some_and(|it| it.epoch == epoch);
    rig.during(until("the replica acts in its epoch", acts))
        .await;
}

#[tokio::test]
async fn a_key_that_upkeep_cannot_reconcile_is_no_operation_of_a_client() {
    let mut rig = Rig::start(|_| {});
    let nodes = [ME, SOURCE, NodeId(3)];
    let founded = Config::founded(HERE, Epoch(2), &nodes);
    rig.adopt(&Arc::new(founded)).await;
    let registers = Arc::clone(&rig.registers);
    let wanted = Wanted {
        partition: HERE,
        at: Locator::of(&record(7, Vec::new())),
        rules: Rules::Linearizable,
        request: Request::Reconcile { rewrite: false },
        deadline: Instant::now() + Duration::from_millis(200),
        trace: None,
    };
    let outcome = rig.during(registers.operate(wanted)).await;
    assert_eq!(outcome, Outcome::Unavailable);
    assert!(rig.metrics().contains("register_unavailable_total 0"));
}

#[tokio::test]
async fn a_hint_that_is_handed_over_or_not_is_no_operation_of_a_client() {
    let mut rig = Rig::start(|_| {});
    let founded = Config::founded(HERE, Epoch(2), &[ME]);
    rig.adopt(&Arc::new(founded)).await;
    let registers = Arc::clone(&rig.registers);
    for (to, is_there) in [(ME, true), (SOURCE, false)] {
        let record = record(7, Vec::new());
        let wanted = Wanted {
            partition: HERE,
            at: Locator::of(&record),
            rules: Rules::Eventual(Quorum::One),
            request: Request::HandOver(Hint { to, record }),
            deadline: Instant::now() + Duration::from_millis(200),
            trace: None,
        };
        let outcome = rig.during(registers.operate(wanted)).await;
        let is_written = matches!(outcome, Outcome::Written { .. });
        assert_eq!(is_written, is_there, "{outcome:?}");
    }
    for line in rig.metrics().lines().filter(|it| !it.starts_with('#')) {
        assert!(
            !line.contains("eventual_") || line.ends_with(" 0"),
            "{line}"
        );
    }
}

/// What this node sends to `SOURCE` after it has received a frame of these claims.
fn confirmed(registers: &Registers, frame: &[&[Claim]]) -> Vec<(Partition, u64, Vec<bool>)> {
    let parcel = |(op, claims): (u64, &&[Claim])| {
        let tag = Tag {
            op: OpId(op),
            ..Tag::default()
        };
        let claims = claims.to_vec();
        Parcel::from(Envelope {
            partition: claims[0].partition,
            epoch: Epoch(2),
            message: Message::Confirm { tag, claims },
        })
    };
    let parcels = (0..).zip(frame).map(parcel).collect();
    let sent = registers.receive_with(SOURCE, parcels, Outbox::default()).0;
    let sent = sent.into_iter().flat_map(|(_, parcels)| parcels);
    let mut answers: Vec<_> = sent
        .map(|parcel| match parcel.envelope.message {
            Message::Confirmed { tag, confirmed } => {
                (parcel.envelope.partition, tag.op.0, confirmed)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    answers.sort_unstable_by_key(|(_, op, _)| *op);
    answers
}

#[tokio::test]
async fn claims_of_one_message_about_partitions_of_all_shards_are_confirmed_in_their_order() {
    let all = [5, 1, 0, 2, 7, 3, 4, 6].map(Partition);
    for shards in [1, 2, 4] {
        let mut rig = Rig::divided(shards, Arc::new(RealFs), |options| {
            options.partitions = Partitions::new(8).unwrap();
        });
        for partition in all {
            let config = Config::founded(partition, Epoch(2), &[ME, SOURCE, NodeId(3)]);
            rig.adopt(&Arc::new(config)).await;
        }
        let claim = |(number, partition)| Claim {
            partition,
            epoch: Epoch(2),
            at: Locator::of(&record(number, Vec::new())),
            version: Ballot::default(),
            // The keys are absent.
            is_absent: number != 2,
        };
        let claims: Vec<_> = (0..).zip(all).map(claim).collect();
        let one_shard: Vec<_> = [0, 1].map(|at| claims[at].clone()).to_vec();
        let other_shards = &claims[4..7];
        let wanted: Vec<_> = (0..8).map(|number| number != 2).collect();
        assert_eq!(
            confirmed(&rig.registers, &[&claims, &one_shard, other_shards]),
            [
                (Partition(5), 0, wanted),
                (Partition(5), 1, vec![true; 2]),
                (Partition(7), 2, vec![true; 3])
            ],
            "{shards} shards"
        );
    }
}

use std::collections::HashMap;

use super::*;
use crate::cmd::bench::keys::Law;
use crate::cmd::bench::ycsb::Core;

fn workload(mix: &str, operations: u64, batch: u32) -> Workload {
    Workload {
        name: None,
        seed: 1,
        keys: 10,
        popularity: Popularity::new(Law::Uniform, 10),
        mix: mix.parse().unwrap(),
        operations,
        batch,
        value: value(1, 100),
    }
}

fn core(core: Core, operations: u64) -> Workload {
    Workload {
        keys: 1_000,
        popularity: Popularity::new(core.law(), 1_000),
        mix: core.mix(),
        ..workload("1/0", operations, 1)
    }
}

fn all(workload: &Workload) -> Vec<Request> {
    let request = |number| workload.request(number, workload.keys);
    (0..).map_while(request).collect()
}

#[test]
fn a_mix_is_two_parts() {
    assert_eq!("9/1".parse(), Ok(Mix::of(9, 1, 0, 0, 0)));
    for text in ["", "9", "9/", "0/0", "-1/2", "a/b", "9999999/1"] {
        assert!(text.parse::<Mix>().is_err(), "{text:?}");
    }
}

#[test]
fn a_run_is_exactly_as_many_operations_as_asked() {
    for (operations, batch) in [(10, 1), (10, 3), (9, 3), (1, 100)] {
        let workload = workload("1/1", operations, batch);
        let requests = all(&workload);
        assert_eq!(requests.len() as u64, workload.requests());
        assert_eq!(
            requests.iter().map(Request::operations).sum::<u64>(),
            operations
        );
    }
}

#[test]
fn the_mix_is_kept_and_the_run_repeatable() {
    let workload = workload("3/1", 10_000, 1);
    let is_get = |request: &&Request| matches!(request, Request::Get(_));
    let gets = all(&workload).iter().filter(is_get).count();
    assert!(
        (7_300..7_700).contains(&gets),
        "{gets}: five deviations around 7,500 are 217"
    );
    assert_eq!(all(&workload), all(&workload));
}

/// Gets, puts, inserts, scans and read-modify-writes, percent, as in YCSB's files.
#[test]
fn each_core_workload_has_the_mix_of_its_definition() {
    let definitions = [
        (Core::A, [50, 50, 0, 0, 0]),
        (Core::B, [95, 5, 0, 0, 0]),
        (Core::C, [100, 0, 0, 0, 0]),
        (Core::D, [95, 0, 5, 0, 0]),
        (Core::E, [0, 0, 5, 95, 0]),
        (Core::F, [50, 0, 0, 0, 50]),
    ];
    for (name, definition) in definitions {
        let mut counts = [0_i64; 5];
        for request in all(&core(name, 20_000)) {
            counts[match request {
                Request::Get(_) => 0,
                Request::Put(_) => 1,
                Request::Insert => 2,
                Request::Scan { .. } => 3,
                Request::Modify(_) => 4,
                other => panic!("a batch: {other:?}"),
            }] += 1;
        }
        for (count, percent) in counts.into_iter().zip(definition) {
            let wanted = 200 * percent;
            // 424 is six standard deviations for a share of one half.
            assert!((count - wanted).abs() <= 424, "{name:?}: {counts:?}");
            assert_eq!(count == 0, percent == 0, "{name:?}: {counts:?}");
        }
    }
}

#[test]
fn scans_are_of_1_to_100_records_alike_and_begin_all_over_the_ring() {
    let mut lengths = [0; 100];
    let mut first_half = 0;
    for request in all(&core(Core::E, 100_000)) {
        if let Request::Scan { after, limit } = request {
            lengths[limit as usize - 1] += 1;
            first_half += u32::from(after.as_bytes()[0] < 128);
        }
    }
    for count in lengths {
        // 950, within six standard deviations.
        assert!((760..1_140).contains(&count), "{count}");
    }
    assert!((20_000..75_000).contains(&first_half), "{first_half}");
}

#[test]
fn the_latest_are_read_most_while_keys_are_added() {
    let workload = core(Core::D, u64::MAX);
    let mut newest = 0;
    for number in 0..10_000 {
        let known = 1_000 + number / 20;
        if workload.request(number, known) == Some(Request::Get(key(known - 1))) {
            newest += 1;
        }
    }
    // One in 7.5 of the 95 %.
    assert!((1_000..1_500).contains(&newest), "{newest}");
}

#[test]
fn popular_keys_are_few_and_not_neighbours() {
    let workload = Workload {
        keys: 10_000,
        popularity: Popularity::new(Law::Zipf, 10_000),
        ..workload("1/0", 20_000, 1)
    };
    let mut counts = HashMap::<Bytes, u32>::new();
    for request in all(&workload) {
        let Request::Get(key) = request else {
            panic!("{request:?}");
        };
        *counts.entry(key).or_default() += 1;
    }
    let most = counts.values().max().unwrap();
    // One in ten, by the ranks of 10,000 keys.
    assert!((1_500..2_700).contains(most), "{most}");
    let mut popular: Vec<_> = counts.iter().filter(|(_, count)| **count > 200).collect();
    popular.sort();
    assert!(popular.len() > 3, "{popular:?}");
    let last = popular.last().unwrap().0;
    assert!(
        last > &key(1_000),
        "they are all over the keys: {popular:?}"
    );
}

#[test]
fn one_sided_mixes_send_one_kind() {
    let gets = all(&workload("1/0", 100, 10));
    assert!(
        gets.iter()
            .all(|request| matches!(request, Request::BatchGet(_)))
    );
    let puts = all(&workload("0/1", 100, 1));
    assert!(
        puts.iter()
            .all(|request| matches!(request, Request::Put(_)))
    );
}

#[test]
fn values_have_the_length_asked_for() {
    assert_eq!(value(1, 0).len(), 0);
    assert_eq!(value(1, 13).len(), 13);
    assert_eq!(key(7), "bench-000000000007");
}

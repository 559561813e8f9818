//! The operations of a node in the last hour, in samples of five seconds.
//!
//! Samples start at multiples of five seconds of Unix time, so those of several nodes can be added.
//! Pure: the time is an argument.

use std::collections::VecDeque;

use torc_proto::load::BUCKETS;
use torc_proto::v1::LoadSample;

use torc_telemetry::operation::{Operation, Totals};

/// Time from sample to sample.
pub(crate) const EVERY_MS: u64 = 5_000;
/// An hour.
pub(crate) const MOST_SAMPLES: usize = 720;
/// Upper bound on the bytes of all samples.
pub(crate) const MOST_BYTES: usize = MOST_SAMPLES * size_of::<Sample>();

/// Five seconds of operations. Counts saturate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    from_ms: u64,
    received_bytes: u64,
    /// Of gRPC clients.
    requests: [u32; Operation::CALLS],
    commands: u32,
    faults: u32,
    get_times: [u32; BUCKETS],
    write_times: [u32; BUCKETS],
}

/// The samples of an hour.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    totals: Totals,
    received_bytes: u64,
}

impl History {
    /// Adds the counts since the last call, as a sample that began at `from_ms`.
    pub(crate) fn add(&mut self, from_ms: u64, totals: Totals, received_bytes: u64) {
        let sample = Sample::between(&self.totals, &totals, from_ms);
        let received_bytes_before = std::mem::replace(&mut self.received_bytes, received_bytes);
        self.totals = totals;
        if self.samples.len() == MOST_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            received_bytes: received_bytes.saturating_sub(received_bytes_before),
            ..sample
        });
    }

    /// The samples that began at `from_ms` or later, oldest first.
    pub(crate) fn since(&self, from_ms: u64) -> Vec<LoadSample> {
        let samples = self.samples.iter();
        let wanted = samples.filter(|sample| sample.from_ms >= from_ms);
        wanted.map(Sample::to_wire).collect()
    }
}

impl Sample {
    fn between(before: &Totals, after: &Totals, from_ms: u64) -> Self {
        let of = |operation: Operation| {
            let operation = operation as usize;
            let counts = after.times[operation].iter().zip(before.times[operation]);
            let mut counts = counts.map(|(after, before)| fit(after - before));
            std::array::from_fn(|_| counts.next().unwrap_or(0))
        };
        let sum = |operations: &[Operation]| {
            operations.iter().fold([0; BUCKETS], |sum, operation| {
                let more: [u32; BUCKETS] = of(*operation);
                std::array::from_fn(|it| u32::saturating_add(sum[it], more[it]))
            })
        };
        let gets = [Operation::Get, Operation::RedisGet];
        let writes = [
            Operation::Put,
            Operation::Delete,
            Operation::RedisPut,
            Operation::RedisDelete,
        ];
        let count = |operation| of(operation).iter().map(|it| u64::from(*it)).sum();
        Self {
            from_ms,
            received_bytes: 0,
            requests: std::array::from_fn(|it| fit(count(Operation::ALL[it]))),
            commands: fit(after.commands - before.commands),
            faults: fit(after.faults - before.faults),
            get_times: sum(&gets),
            write_times: sum(&writes),
        }
    }

    fn to_wire(&self) -> LoadSample {
        let wide = |counts: &[u32]| counts.iter().map(|it| u64::from(*it)).collect();
        LoadSample {
            from_ms: self.from_ms,
            requests: wide(&[&self.requests[..], &[self.commands]].concat()),
            faults: self.faults.into(),
            get_times: wide(&self.get_times),
            write_times: wide(&self.write_times),
            received_bytes: self.received_bytes,
        }
    }
}

fn fit(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(gets: u64, puts: u64, deletes: u64) -> Totals {
        let mut totals = Totals::default();
        totals.times[Operation::Get as usize][0] = gets;
        totals.times[Operation::Put as usize][3] = puts;
        totals.times[Operation::Delete as usize][3] = deletes;
        totals.times[Operation::RedisGet as usize][1] = 7 * gets;
        totals.times[Operation::RedisPut as usize][4] = puts;
        totals.faults = deletes;
        totals.commands = 2 * gets;
        totals
    }

    #[test]
    fn a_sample_is_what_came_since_the_one_before() {
        let mut history = History::default();
        history.add(5_000, totals(10, 4, 1), 100);
        history.add(10_000, totals(15, 4, 3), 150);
        let samples = history.since(0);
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[0].requests, [10, 4, 1, 0, 0, 0, 20]);
        assert_eq!(samples[1].requests, [5, 0, 2, 0, 0, 0, 10]);
        assert_eq!(
            samples[1].get_times[..2],
            [5, 35],
            "Redis clients' gets, too"
        );
        assert_eq!(samples[0].write_times[3..5], [5, 4]);
        assert_eq!(samples[1].write_times[3], 2, "a delete is a write");
        assert_eq!((samples[1].faults, samples[1].received_bytes), (2, 50));
        assert_eq!(history.since(5_001), samples[1..]);
    }

    #[test]
    fn an_hour_is_kept_in_the_bytes_that_the_documents_name() {
        let mut history = History::default();
        for number in 0..1_000 {
            history.add(number * EVERY_MS, totals(number, 0, 0), 0);
        }
        let kept = history.since(0);
        assert_eq!(kept.len(), MOST_SAMPLES);
        assert_eq!(kept[0].from_ms, 280 * EVERY_MS, "the oldest went");
        assert_eq!(MOST_BYTES, 161_280);
    }

    #[test]
    fn what_does_not_fit_is_the_highest_that_does() {
        let mut history = History::default();
        history.add(0, totals(u64::from(u32::MAX) + 9, 0, 0), 0);
        assert_eq!(history.since(0)[0].requests[0], u64::from(u32::MAX));
    }
}

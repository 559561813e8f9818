//! Which requests a benchmark sends: a pure function of the seed and the request's
//! number, so that two runs ask for the same.

use std::str::FromStr;

use bytes::Bytes;

use super::zipf::Zipf;
use crate::cmd::generate_urls::Random;

/// Gets to puts, for example `90/10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) gets: u32,
    pub(super) puts: u32,
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "use GETS/PUTS, for example 90/10, 1/0 or 0/1".to_owned();
        let (gets, puts) = text.split_once('/').ok_or_else(refused)?;
        let part = |text: &str| {
            text.trim()
                .parse::<u32>()
                .ok()
                .filter(|part| *part <= 1_000_000)
        };
        match (part(gets), part(puts)) {
            (Some(gets), Some(puts)) if gets + puts > 0 => Ok(Self { gets, puts }),
            _ => Err(refused()),
        }
    }
}

/// Which keys are asked for how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Popularity {
    /// All alike.
    Uniform,
    /// A few much more often than the others; which ones is scattered over the keys.
    Zipf(Zipf),
}

/// What to send.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) seed: u64,
    /// Different keys, at least 1.
    pub(super) keys: u64,
    pub(super) popularity: Popularity,
    pub(super) mix: Mix,
    /// Gets and puts altogether, at most.
    pub(super) operations: u64,
    /// Operations a request, at least 1.
    pub(super) batch: u32,
    pub(super) value: Bytes,
}

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Get(Bytes),
    Put(Bytes, Bytes),
    BatchGet(Vec<Bytes>),
    BatchPut(Vec<(Bytes, Bytes)>),
}

impl Request {
    pub(super) fn operations(&self) -> u64 {
        match self {
            Self::Get(_) | Self::Put(..) => 1,
            Self::BatchGet(keys) => keys.len() as u64,
            Self::BatchPut(records) => records.len() as u64,
        }
    }
}

impl Workload {
    /// How many requests there are.
    pub(super) fn requests(&self) -> u64 {
        self.operations.div_ceil(u64::from(self.batch))
    }

    /// The request of a number; none beyond the last. The last batch may be smaller.
    pub(super) fn request(&self, number: u64) -> Option<Request> {
        let before = number.checked_mul(u64::from(self.batch))?;
        let operations = self
            .operations
            .checked_sub(before)
            .filter(|left| *left > 0)?;
        let operations = operations.min(u64::from(self.batch)) as usize;
        let mut random = Random::of(self.seed, number);
        let total = u64::from(self.mix.gets) + u64::from(self.mix.puts);
        let get = random.below(total) < u64::from(self.mix.gets);
        let mut next_key = || key(self.key_number(&mut random));
        Some(match (get, self.batch) {
            (true, 1) => Request::Get(next_key()),
            (false, 1) => Request::Put(next_key(), self.value.clone()),
            (true, _) => Request::BatchGet((0..operations).map(|_| next_key()).collect()),
            (false, _) => {
                let record = |_| (next_key(), self.value.clone());
                Request::BatchPut((0..operations).map(record).collect())
            }
        })
    }
}

impl Workload {
    fn key_number(&self, random: &mut Random) -> u64 {
        match &self.popularity {
            Popularity::Uniform => random.next() % self.keys,
            // A rank is a place in some order of the keys: the same one in every run of a seed.
            Popularity::Zipf(zipf) => {
                let rank = zipf.rank(|| random.next());
                Random::of(self.seed, rank).next() % self.keys
            }
        }
    }
}

/// The key of a number below 10^12, always 18 bytes.
pub(super) fn key(number: u64) -> Bytes {
    Bytes::from(format!("bench-{number:012}"))
}

/// A value that does not compress.
pub(super) fn value(seed: u64, len: usize) -> Bytes {
    let mut random = Random::of(seed, u64::MAX);
    let words = std::iter::repeat_with(move || random.next().to_le_bytes());
    words.flatten().take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(mix: &str, operations: u64, batch: u32) -> Workload {
        Workload {
            seed: 1,
            keys: 10,
            popularity: Popularity::Uniform,
            mix: mix.parse().unwrap(),
            operations,
            batch,
            value: value(1, 100),
        }
    }

    fn all(workload: &Workload) -> Vec<Request> {
        (0..).map_while(|number| workload.request(number)).collect()
    }

    #[test]
    fn a_mix_is_two_parts() {
        assert_eq!("9/1".parse(), Ok(Mix { gets: 9, puts: 1 }));
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

    #[test]
    fn popular_keys_are_few_and_not_neighbours() {
        let workload = Workload {
            keys: 10_000,
            popularity: Popularity::Zipf(Zipf::new(10_000, 0.99)),
            ..workload("1/0", 20_000, 1)
        };
        let mut counts = std::collections::HashMap::<Bytes, u32>::new();
        for request in all(&workload) {
            let Request::Get(key) = request else {
                panic!("{request:?}");
            };
            *counts.entry(key).or_default() += 1;
        }
        let most = counts.values().max().unwrap();
        // One in ten, as ranks of 10,000 say.
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
                .all(|request| matches!(request, Request::Put(..)))
        );
    }

    #[test]
    fn values_have_the_length_asked_for() {
        assert_eq!(value(1, 0).len(), 0);
        assert_eq!(value(1, 13).len(), 13);
        assert_eq!(key(7), "bench-000000000007");
    }
}

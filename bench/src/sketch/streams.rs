//! Streams of accesses, generated one block at a time.

use rustix::time::{ClockId, clock_gettime};
use torc_record::Digest;
use torc_sketch::SeedStream;

use crate::records::Random;

/// Accesses generated, and then counted, at a time: enough that a subject loads its data into the
/// caches once and uses it often.
const BLOCK: usize = 1 << 18;

/// The distribution of the accesses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Key i with a probability that falls with i^-1.1.
    Zipf,
    /// All keys are equally likely.
    Uniform,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf 1.1",
            Self::Uniform => "uniform",
        }
    }
}

/// An endless stream.
pub(super) struct Stream {
    pub(super) kind: Kind,
    pub(super) keys: u64,
    random: Random,
    zipf: Zipf,
}

/// Accesses in Torc's form and in a peer's form.
#[derive(Default)]
pub(super) struct Block {
    pub(super) keys: Vec<u64>,
    pub(super) digests: Vec<Digest>,
}

impl Block {
    fn push(&mut self, key: u64) {
        self.keys.push(key);
        self.digests.push(digest(key));
    }
}

/// The digest that stands for the key with a number: as random as a real one.
pub(super) fn digest(key: u64) -> Digest {
    Digest(SeedStream::new(key).next_u128().to_be_bytes())
}

impl Stream {
    pub(super) fn new(kind: Kind, keys: u64, seed: u64) -> Self {
        let random = Random::of(seed);
        let zipf = Zipf::new(keys, 1.1);
        Self {
            kind,
            keys,
            random,
            zipf,
        }
    }

    /// Passes `accesses` of the stream to `each`, in blocks, and adds them to exact counts.
    pub(super) fn for_each_block(
        &mut self,
        accesses: u64,
        mut each: impl FnMut(&Block),
    ) -> Vec<u64> {
        let mut exact = vec![0; self.keys as usize];
        let mut left = accesses;
        let mut block = Block::default();
        while left > 0 {
            block.keys.clear();
            block.digests.clear();
            for _ in 0..left.min(BLOCK as u64) {
                let key = self.next_key();
                exact[key as usize] += 1;
                block.push(key);
            }
            left -= block.keys.len() as u64;
            each(&block);
        }
        exact
    }

    fn next_key(&mut self) -> u64 {
        match self.kind {
            Kind::Zipf => self.zipf.draw(&mut self.random),
            Kind::Uniform => self.random.next() % self.keys,
        }
    }
}

/// Processor time of this thread that `work` takes, and its result: excludes other work on the
/// machine, except for shared caches.
pub(super) fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let started = now();
    let result = work();
    (now() - started, result)
}

/// Time spent on counting, over many blocks.
#[derive(Default)]
pub(super) struct Stopwatch {
    seconds: f64,
    times: u64,
}

impl Stopwatch {
    /// Times one call of `work` on each of `items`.
    pub(super) fn each<T>(&mut self, items: &[T], work: impl FnMut(&T)) {
        self.seconds += seconds(|| items.iter().for_each(work)).0;
        self.times += items.len() as u64;
    }

    pub(super) fn ns(&self) -> f64 {
        self.seconds * 1e9 / self.times as f64
    }
}

/// Numbers below `n`, number i with a probability proportional to (i + 1)^-s: rejection-inversion
/// (Hörmann and Derflinger 1996), for s other than 1.
pub(crate) struct Zipf {
    n: f64,
    s: f64,
    low: f64,
    high: f64,
    /// A draw this close above its number needs no rejection test.
    sure: f64,
}

impl Zipf {
    pub(crate) fn new(n: u64, s: f64) -> Self {
        let mut zipf = Self {
            n: n as f64,
            s,
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.n + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - 2_f64.powf(-s));
        zipf
    }

    /// The integral of x^-s, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.s) - 1.0) / (1.0 - self.s)
    }

    fn inverse(&self, y: f64) -> f64 {
        y.mul_add(1.0 - self.s, 1.0).powf(1.0 / (1.0 - self.s))
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let uniform = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
            let y = uniform.mul_add(self.low - self.high, self.high);
            let x = self.inverse(y);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.sure || y >= self.integral(k + 0.5) - k.powf(-self.s) {
                return k as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 200,000 draws, the first key has the share 1 / H with H = sum of i^-1.1, within five
    /// standard deviations; the second has 2^-1.1 of that.
    #[test]
    fn zipf_draws_follow_their_law() {
        let exact = Stream::new(Kind::Zipf, 1000, 7).for_each_block(200_000, |_| ());
        let sum: f64 = (1..=1000).map(|i| f64::from(i).powf(-1.1)).sum();
        for i in [1, 2, 10, 1000] {
            let expected = 200_000.0 * f64::from(i).powf(-1.1) / sum;
            let drawn = exact[i as usize - 1] as f64;
            assert!(
                (drawn - expected).abs() < 5.0 * expected.sqrt(),
                "key {i}: {drawn}, not {expected}"
            );
        }
    }

    #[test]
    fn a_stream_has_as_many_accesses_as_were_asked_for() {
        for accesses in [1, BLOCK as u64, BLOCK as u64 + 1] {
            let mut seen = 0;
            let exact = Stream::new(Kind::Uniform, 10, 7).for_each_block(accesses, |block| {
                seen += block.keys.len() as u64;
                assert_eq!(block.keys.len(), block.digests.len());
            });
            assert_eq!((seen, exact.iter().sum()), (accesses, accesses));
        }
    }
}

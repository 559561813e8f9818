//! The lecture's Akamai: most objects are asked for once, so a cache should store an object on its second request only.
//!
//! ```text
//! cargo run --release -p torc-sketch --example one_hit_wonders -- [OBJECTS]  < requests
//! ```
//!
//! Reads requests, an object's name a line, or makes some up where there is a terminal. Runs a cache of OBJECTS (1,000) objects that
//! forgets what was not used longest, once as it is and once behind a Bloom filter, and prints hits and writes of both.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers and figures"
)]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, IsTerminal as _, Write as _, stdin, stdout};

use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::SeedStream;
use torc_sketch::bloom::{BloomFilter, BloomShape};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster.
const CLUSTER: DigestKey = DigestKey([7; 32]);

/// Forgets what was not used longest.
#[derive(Default)]
struct Cache {
    used: HashMap<Digest, u64>,
    by_use: BTreeMap<u64, Digest>,
    clock: u64,
    hits: u64,
    writes: u64,
}

impl Cache {
    /// Whether the object is there; it has been used then.
    fn get(&mut self, object: Digest) -> bool {
        self.clock += 1;
        let Some(used) = self.used.get_mut(&object) else {
            return false;
        };
        self.by_use.remove(used);
        *used = self.clock;
        self.by_use.insert(self.clock, object);
        self.hits += 1;
        true
    }

    fn put(&mut self, object: Digest, room: usize) {
        if self.used.len() >= room
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
        self.used.insert(object, self.clock);
        self.by_use.insert(self.clock, object);
        self.writes += 1;
    }
}

/// What was asked for lately: two filters, of which the older is dropped when the newer is full.
struct Seen {
    newer: BloomFilter,
    older: BloomFilter,
    room: u64,
    held: u64,
}

impl Seen {
    fn new(room: u64) -> Result<Self, Failure> {
        let shape = BloomShape::for_keys(room, 0.01)?;
        let (newer, older) = (BloomFilter::new(shape), BloomFilter::new(shape));
        Ok(Self {
            newer,
            older,
            room,
            held: 0,
        })
    }

    /// Notes a request; whether there was one before, but for one stranger in 50.
    fn again(&mut self, object: &Digest) -> bool {
        let before = self.older.may_contain(object);
        if !self.newer.insert(object) {
            return true;
        }
        self.held += 1;
        if self.held == self.room {
            let empty = BloomFilter::new(self.newer.shape());
            self.older = std::mem::replace(&mut self.newer, empty);
            self.held = 0;
        }
        before
    }
}

fn main() -> Result<(), Failure> {
    let room: usize = std::env::args().nth(1).map_or(Ok(1_000), |n| n.parse())?;
    let mut seen = Seen::new(20 * room.max(1) as u64)?;
    let (mut plain, mut filtered) = (Cache::default(), Cache::default());
    let mut asked: HashMap<Digest, u64> = HashMap::new();
    let mut request = |object: &[u8]| {
        let object = Digest::of(&CLUSTER, NamespaceId::DEFAULT, object);
        *asked.entry(object).or_default() += 1;
        if !plain.get(object) {
            plain.put(object, room);
        }
        let again = seen.again(&object);
        if !filtered.get(object) && again {
            filtered.put(object, room);
        }
    };
    if stdin().is_terminal() {
        made_up_requests().for_each(|object| request(object.as_bytes()));
    } else {
        for line in stdin().lock().split(b'\n') {
            request(&line?);
        }
    }
    let wonders = asked.values().filter(|count| **count == 1).count();
    let requests: u64 = asked.values().sum();
    let mut out = stdout().lock();
    writeln!(
        out,
        "{requests} requests for {} objects, {wonders} of them asked for once",
        asked.len()
    )?;
    for (name, cache) in [("every object", &plain), ("the second request", &filtered)] {
        let share = 100.0 * cache.hits as f64 / requests.max(1) as f64;
        let (hits, writes) = (cache.hits, cache.writes);
        writeln!(
            out,
            "storing {name}: {hits} hits ({share:.1} %), {writes} writes"
        )?;
    }
    let bytes = seen.newer.bytes() + seen.older.bytes();
    writeln!(out, "the filter takes {bytes} bytes")?;
    Ok(())
}

/// Half of the requests are for 2,000 objects, of which number i is i times rarer than the first; the others for an object each.
fn made_up_requests() -> impl Iterator<Item = String> {
    let mut random = SeedStream::new(1);
    (0..200_000).map(move |request| {
        let uniform = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        if random.below(2) == 0 {
            format!("object{}", 2_000_f64.powf(uniform) as u32)
        } else {
            format!("wonder{request}")
        }
    })
}

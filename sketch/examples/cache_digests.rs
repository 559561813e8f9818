//! The lecture's Squid: caches that tell each other what they hold by Bloom filters.
//!
//! ```text
//! cargo run --release -p torc-sketch --example cache_digests -- [CACHES [OBJECTS]]  < requests
//! ```
//!
//! Reads requests, an object's name a line, which come to CACHES (4) caches of OBJECTS (1,000) objects in turn. A cache that misses asks a sibling
//! whose digest says yes, and the origin if there is none. A cache's own set changes with every object, so it is a filter with deletion;
//! what it sends is the plain filter of that, every 1,000 requests. Prints who answered, and what the digests cost.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers and figures"
)]

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead as _, IsTerminal as _, Write as _, stdin, stdout};

use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::SeedStream;
use torc_sketch::bloom::{BloomFilter, BloomShape, CountingBloom};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster.
const CLUSTER: DigestKey = DigestKey([7; 32]);
/// Requests between two digests.
const EVERY: u64 = 1_000;

/// Forgets what it has held longest.
struct Cache {
    held: HashSet<Digest>,
    order: VecDeque<Digest>,
    room: usize,
    /// What is held, kept up to date.
    summary: CountingBloom,
    /// The digest that the siblings have.
    sent: BloomFilter,
}

impl Cache {
    fn new(room: usize, shape: BloomShape) -> Self {
        Self {
            held: HashSet::new(),
            order: VecDeque::new(),
            room,
            summary: CountingBloom::new(shape),
            sent: BloomFilter::new(shape),
        }
    }

    fn put(&mut self, object: Digest) -> Result<(), Failure> {
        if self.held.len() >= self.room
            && let Some(oldest) = self.order.pop_front()
        {
            self.held.remove(&oldest);
            self.summary.delete(&oldest)?;
        }
        self.held.insert(object);
        self.order.push_back(object);
        self.summary.insert(&object);
        Ok(())
    }

    /// Sends the digest: over the wire, as bytes. Returns how many.
    fn publish(&mut self) -> Result<usize, Failure> {
        let bytes = self.summary.to_filter().encode();
        self.sent = BloomFilter::decode(&bytes, self.summary.shape().bits())?;
        Ok(bytes.len())
    }
}

#[derive(Default)]
struct Counts {
    requests: u64,
    own: u64,
    sibling: u64,
    deceived: u64,
    digest_bytes: usize,
}

fn request(caches: &mut [Cache], object: Digest, counts: &mut Counts) -> Result<(), Failure> {
    let at = (counts.requests % caches.len() as u64) as usize;
    counts.requests += 1;
    if caches[at].held.contains(&object) {
        counts.own += 1;
    } else {
        let siblings = caches.iter().enumerate().filter(|(other, _)| *other != at);
        let mut promising = siblings.filter(|(_, sibling)| sibling.sent.may_contain(&object));
        if let Some((_, sibling)) = promising.next() {
            let is_there = sibling.held.contains(&object);
            *(if is_there {
                &mut counts.sibling
            } else {
                &mut counts.deceived
            }) += 1;
        }
        caches[at].put(object)?;
    }
    if counts.requests.is_multiple_of(EVERY) {
        for cache in caches {
            counts.digest_bytes += cache.publish()?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let number: usize = args.next().map_or(Ok(4), |n| n.parse())?;
    let room: usize = args.next().map_or(Ok(1_000), |n| n.parse())?;
    let shape = BloomShape::for_keys(room as u64, 0.01)?;
    let caches = (0..number.max(1)).map(|_| Cache::new(room.max(1), shape));
    let mut caches: Vec<Cache> = caches.collect();
    let mut counts = Counts::default();
    let digest = |object: &[u8]| Digest::of(&CLUSTER, NamespaceId::DEFAULT, object);
    if stdin().is_terminal() {
        for object in made_up_requests() {
            request(&mut caches, digest(object.as_bytes()), &mut counts)?;
        }
    } else {
        for line in stdin().lock().split(b'\n') {
            request(&mut caches, digest(&line?), &mut counts)?;
        }
    }
    let origin = counts.requests - counts.own - counts.sibling;
    let mut out = stdout().lock();
    writeln!(out, "{} requests", counts.requests)?;
    writeln!(out, "{} answered by the cache itself", counts.own)?;
    writeln!(out, "{} answered by a sibling", counts.sibling)?;
    writeln!(
        out,
        "{origin} answered by the origin, {} of them after a sibling's digest was wrong or old",
        counts.deceived
    )?;
    writeln!(out, "{} bytes of digests", counts.digest_bytes)?;
    Ok(())
}

/// 200,000 requests for 20,000 objects, of which number i is i times rarer than the first.
fn made_up_requests() -> impl Iterator<Item = String> {
    let mut random = SeedStream::new(1);
    (0..200_000).map(move |_| {
        let uniform = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        format!("object{}", 20_000_f64.powf(uniform) as u32)
    })
}

//! The requests of a benchmark: a pure function of the seed, the request's number and the
//! known keys, so two runs send the same requests.

use std::str::FromStr;

use bytes::Bytes;
use torc_client::ScanCursor;

use super::keys::Popularity;
use crate::cmd::generate_urls::Random;

/// The longest scan, records, as in YCSB. Lengths are uniform, from 1.
const LONGEST_SCAN: u64 = 100;

/// Requests of each kind, as weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mix {
    gets: u32,
    puts: u32,
    inserts: u32,
    scans: u32,
    /// A get, then a put of the same key.
    modifies: u32,
}

impl Mix {
    pub(super) const fn of(gets: u32, puts: u32, inserts: u32, scans: u32, modifies: u32) -> Self {
        Self {
            gets,
            puts,
            inserts,
            scans,
            modifies,
        }
    }

    /// Whether some requests need existing keys.
    pub(super) const fn reads(&self) -> bool {
        self.gets + self.scans + self.modifies > 0
    }

    fn pick(&self, random: &mut Random) -> Kind {
        let parts = [
            (self.gets, Kind::Get),
            (self.puts, Kind::Put),
            (self.inserts, Kind::Insert),
            (self.scans, Kind::Scan),
            (self.modifies, Kind::Modify),
        ];
        let total = parts.iter().map(|(part, _)| u64::from(*part)).sum();
        let mut at = random.below(total);
        for (part, kind) in parts {
            match at.checked_sub(part.into()) {
                None => return kind,
                Some(rest) => at = rest,
            }
        }
        Kind::Get
    }
}

/// Gets to puts, for example `90/10`.
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
            (Some(gets), Some(puts)) if gets + puts > 0 => Ok(Self::of(gets, puts, 0, 0, 0)),
            _ => Err(refused()),
        }
    }
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Get,
    Put,
    Insert,
    Scan,
    Modify,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Get, Self::Put, Self::Insert, Self::Scan, Self::Modify];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::Modify => "read-modify-write",
        }
    }
}

/// What to send.
#[derive(Debug)]
pub(super) struct Workload {
    /// Its name in YCSB, if any.
    pub(super) name: Option<&'static str>,
    pub(super) seed: u64,
    /// Keys that exist from the start, at least 1.
    pub(super) keys: u64,
    pub(super) popularity: Popularity,
    pub(super) mix: Mix,
    /// The limit of operations.
    pub(super) operations: u64,
    /// Gets or puts in one request, at least 1.
    pub(super) batch: u32,
    pub(super) value: Bytes,
}

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Get(Bytes),
    Put(Bytes),
    BatchGet(Vec<Bytes>),
    BatchPut(Vec<Bytes>),
    /// Stores a new key.
    Insert,
    Scan {
        after: ScanCursor,
        limit: u64,
    },
    /// Get, then put.
    Modify(Bytes),
}

impl Request {
    pub(super) fn operations(&self) -> u64 {
        match self {
            Self::Get(_) | Self::Put(_) | Self::Insert | Self::Scan { .. } | Self::Modify(_) => 1,
            Self::BatchGet(keys) | Self::BatchPut(keys) => keys.len() as u64,
        }
    }
}

impl Workload {
    /// The number of requests.
    pub(super) fn requests(&self) -> u64 {
        self.operations.div_ceil(u64::from(self.batch))
    }

    /// Request `number`, over `known` keys; `None` beyond the last. The last batch may be smaller.
    pub(super) fn request(&self, number: u64, known: u64) -> Option<Request> {
        let before = number.checked_mul(u64::from(self.batch))?;
        let operations = self
            .operations
            .checked_sub(before)
            .filter(|left| *left > 0)?;
        let operations = operations.min(u64::from(self.batch)) as usize;
        let mut random = Random::of(self.seed, number);
        let kind = self.mix.pick(&mut random);
        let mut next = || self.popularity.number(self.seed, known, &mut random);
        Some(match (kind, self.batch) {
            (Kind::Get, 1) => Request::Get(key(next())),
            (Kind::Put, 1) => Request::Put(key(next())),
            (Kind::Get, _) => Request::BatchGet((0..operations).map(|_| key(next())).collect()),
            (Kind::Put, _) => Request::BatchPut((0..operations).map(|_| key(next())).collect()),
            (Kind::Insert, _) => Request::Insert,
            (Kind::Modify, _) => Request::Modify(key(next())),
            (Kind::Scan, _) => {
                let after = self.place(next());
                let limit = 1 + random.below(LONGEST_SCAN);
                Request::Scan { after, limit }
            }
        })
    }

    /// Start position of a scan for a key's number: always the same place on the ring.
    fn place(&self, number: u64) -> ScanCursor {
        let token = Random::of(self.seed, number).next();
        // Eight bytes are a valid position.
        ScanCursor::from_bytes(&token.to_be_bytes()).unwrap_or_default()
    }
}

/// The key of a number: 18 bytes for numbers below 10^12.
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
mod tests;

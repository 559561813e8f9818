//! The faults of a run, and their rates.
//!
//! `mixed` draws its faults for every seed, each kind absent from about half of the
//! runs, because some bugs need a fault to be absent (Groce et al., "Swarm Testing",
//! 2012). Each of the other profiles targets one group of rules.

mod directed;
mod faults;
mod mixed;

use crate::rng::Rng;

pub use faults::Faults;

/// A named way to draw [`Faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Anything.
    Mixed,
    /// Moves, aborts and dead replicas.
    Moves,
    /// Live replicas declared dead.
    Dead,
    /// Sets that grow and shrink.
    Resize,
    /// Aborts of moves that read the new set.
    Aborts,
    /// Deletes and collection.
    Collection,
    /// Expiry and collection.
    Expiry,
    /// Crashes and slow disks.
    Crashes,
    /// Short crashes, with earlier messages still on their way.
    Restarts,
    /// Records that become unreadable.
    Damage,
    /// Wiped nodes.
    Wipes,
    /// Lost messages, one coordinator per key.
    Warm,
    /// Comparisons with much loss.
    Repair,
    /// Slices copied while tombstones are collected and moves aborted.
    Slices,
    /// Scans while values are written, moved and expire.
    Scans,
    /// Sets of one replica that grow and move, with gets from the disk alone.
    Alone,
    /// Several keys and their collection while replicas move.
    Copies,
    /// Keys that share a digest, and records with a wrong one.
    Digests,
    /// Many writers at few coordinators, several operations at once, cancelled callers.
    Lines,
    /// Keys of `eventual` namespaces, and collection.
    Eventual,
    /// The same while replicas move.
    EventualMoves,
    /// The same with records that become unreadable.
    EventualDamage,
    /// `eventual`: answers from before a collection that arrive after it.
    EventualLate,
    /// Late learning, with records that become unreadable.
    Learns,
    /// The same with keys of `eventual` namespaces.
    EventualLearns,
    /// Expiring keys of `eventual` namespaces, on nodes whose clocks differ and go back.
    EventualExpiry,
    /// The same with crashes, lost batches and slow disks.
    EventualCrashes,
    /// Sets of one replica whose slices are copied before all nodes know that it moves.
    StaleSlices,
    /// Epochs that become durable slowly, and that nodes hear of late.
    Adoptions,
    /// Slow disk reads while replicas move.
    SlowReads,
    /// Keys that must be fetched from the disk, while disks are full and replicas move and crash.
    Cold,
    /// Merges into keys that are written, deleted, collected and moved.
    Merges,
    /// Batches that disks do not store, under running coordinators.
    LostBatches,
    /// Records with digests of other keys in sets that grow and shrink.
    Foreign,
    /// A namespace that is created with records beside keys that are deleted and collected.
    Creations,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 35] = [
        Self::Mixed,
        Self::Moves,
        Self::Dead,
        Self::Resize,
        Self::Aborts,
        Self::Collection,
        Self::Expiry,
        Self::Crashes,
        Self::Restarts,
        Self::Damage,
        Self::Wipes,
        Self::Warm,
        Self::Repair,
        Self::Slices,
        Self::Scans,
        Self::Alone,
        Self::Copies,
        Self::Digests,
        Self::Lines,
        Self::Eventual,
        Self::EventualMoves,
        Self::EventualDamage,
        Self::EventualLate,
        Self::Learns,
        Self::EventualLearns,
        Self::EventualExpiry,
        Self::EventualCrashes,
        Self::StaleSlices,
        Self::Adoptions,
        Self::SlowReads,
        Self::Cold,
        Self::Merges,
        Self::LostBatches,
        Self::Foreign,
        Self::Creations,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Moves => "moves",
            Self::Dead => "dead",
            Self::Resize => "resize",
            Self::Aborts => "aborts",
            Self::Collection => "collection",
            Self::Expiry => "expiry",
            Self::Crashes => "crashes",
            Self::Restarts => "restarts",
            Self::Damage => "damage",
            Self::Wipes => "wipes",
            Self::Warm => "warm",
            Self::Repair => "repair",
            Self::Slices => "slices",
            Self::Scans => "scans",
            Self::Alone => "alone",
            Self::Copies => "copies",
            Self::Digests => "digests",
            Self::Lines => "lines",
            Self::Eventual => "eventual",
            Self::EventualMoves => "eventual-moves",
            Self::EventualDamage => "eventual-damage",
            Self::EventualLate => "eventual-late",
            Self::Learns => "learns",
            Self::EventualLearns => "eventual-learns",
            Self::EventualExpiry => "eventual-expiry",
            Self::EventualCrashes => "eventual-crashes",
            Self::StaleSlices => "stale-slices",
            Self::Adoptions => "adoptions",
            Self::SlowReads => "slow-reads",
            Self::Cold => "cold",
            Self::Merges => "merges",
            Self::LostBatches => "lost-batches",
            Self::Foreign => "foreign",
            Self::Creations => "creations",
        }
    }

    /// The profile of a campaign's seed: half are mixed, the others alternate.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        if seed.is_multiple_of(2) {
            return Self::Mixed;
        }
        Self::ALL[1 + (seed / 2 % (Self::ALL.len() as u64 - 1)) as usize]
    }

    /// The faults of a run.
    pub fn draw(self, rng: &mut Rng) -> Faults {
        let base = Faults::base(rng);
        match self {
            Self::Mixed => mixed::draw(base, rng),
            _ => self.directed(base, rng),
        }
    }
}

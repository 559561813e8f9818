//! Why there is no gate.

use super::{MAX_PROBES, MAX_RATE, MIN_RATE};

/// Why a gate cannot be built, or why bytes are not a gate. Nothing was built or changed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The rate is out of bounds. Choose one from `MIN_RATE` to `MAX_RATE`.
    #[error("the false positive rate must be {MIN_RATE} to {MAX_RATE}, not {rate}")]
    Rate {
        /// The requested rate.
        rate: f64,
    },
    /// More than 4 GiB of blocks, about 3.4 billion keys at 1 %. Split the keys.
    #[error("more than 4 GiB of blocks: split the keys over several gates")]
    TooMany,
    /// Shorter than the two bytes at the end of every gate. Take the gate from a replica.
    #[error("{len} bytes are too few for a gate")]
    Truncated {
        /// Bytes given.
        len: usize,
    },
    /// Another format; a newer version of Torc may read it.
    #[error("gate format {found} is not known here")]
    Format {
        /// The format byte found.
        found: u8,
    },
    /// More probes than any gate has, or probes without blocks: these bytes are not a gate.
    #[error("{found} probes a key do not fit these blocks (1 to {MAX_PROBES}, 0 for no keys)")]
    Probes {
        /// The number of probes found.
        found: u32,
    },
}

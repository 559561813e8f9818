//! Streaming sketches, each with its question, its error and its bytes.
//!
//! | structure | question | error | bytes |
//! |---|---|---|---|
//! | [`CountMin`] | how often was this key seen? | never too low; too high by εN with probability at most δ | 16/ε log2(1/δ) |
//! | [`HeavyHitters`] | which keys make up 1/k of the stream? | none is missed; each has N/k - εN | that, and 4k candidates at most |
//! | [`MajorityCounter`], [`MajorityBits`] | which key may have more than half? | none, if there is one | 32; 1,032 |
//! | [`InnerProduct`] | how large is the join of two streams? | stated with the answer | those of the sketches |
//! | [`overlap`] | how many keys do two sets share? | stated with the answer | 5 MiB a set |
//! | [`bloom`]: plain, growing, with deletion | was this key ever seen? | never a wrong no; a wrong yes at the rate δ | 1.44 log2(1/δ) bits a key |
//! | [`rolling`] | where does this string occur, which substrings are equal, where does one cut? | matches are verified; of hashes alone stated | a window; 4 a byte under edits |
//! | [`search`] | where do these strings occur in a text at hand? | none | by pattern |
//! | [`hot_keys`] | what is hot, where and since when? | that of heavy hitters, over any window | by budget |
//!
//! The algorithms are those of a lecture on hashing (S. Jiang, Hash methods, Peking University 2023), whose theorems the tests state and check.
//!
//! Invariants:
//! * A key comes in as its [`torc_record::Digest`], computed once; nothing here hashes it again, but [`overlap`], whose digests have no namespace.
//! * All randomness is a seed that is passed in: the same seed and stream give the same bytes on every host.
//! * Sketches of counts are linear: what is summed, subtracted or windowed equals what was counted that way.
//! * No bytes, however hostile, make a decoder panic, loop or allocate beyond the caller's limit.
//!
//! Absent on purpose: clocks, threads, files; who keeps snapshots and sends them (the server); the Bloom gate of
//! sealed records (`torc-index`).
//!
//! Programs that use these structures on files and streams, `cargo run --release -p torc-sketch --example NAME`:
//!
//! | example | does |
//! |---|---|
//! | `heavy_hitters`, `matrix_search` | the lecture's exercises; `--judge` reads what a judge feeds them |
//! | `one_hit_wonders` | a cache that stores an object on its second request |
//! | `cache_digests` | caches that tell each other what they hold |
//! | `bloom_join` | a join of two files that spares rows |
//! | `seen_before` | an archive that stores a chunk once, a limit of recipients, articles that were not read |
//! | `safe_browsing` | a client that asks a server about few URLs, and misses no malicious one |
//! | `substrings` | prefix, substring and concatenation: first difference, longest repeat, the hash of a whole from its parts |
//! | `edit` | a string under insertion and deletion, hashed and compared at any time |
//! | `pattern_hashes` | a search for patterns of which only hashes are kept |

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "tests count small numbers"
    )
)]

pub mod bloom;
mod bytes;
pub mod count_min;
pub mod hash;
pub mod heavy_hitters;
pub mod hot_keys;
mod majority;
pub mod overlap;
pub mod rolling;
pub mod search;
mod seed;
#[cfg(test)]
mod testing;

pub use count_min::{CombineError, CountMin, DecodeError, InnerProduct, Shape, ShapeError};
pub use heavy_hitters::{HeavyHitter, HeavyHitters};
pub use majority::{MajorityBits, MajorityCounter};
pub use seed::SeedStream;

//! Streaming sketches, each with its question, its error and its bytes.
//!
//! | structure | question | error | bytes |
//! |---|---|---|---|
//! | [`CountMin`] | how often was this key seen? | never too low; too high by εN with probability at most δ | 16/ε log2(1/δ) |
//! | [`HeavyHitters`] | which keys make up 1/k of the stream? | none is missed; each has N/k - εN | that, and 4k candidates at most |
//! | [`MajorityCounter`], [`MajorityBits`](lecture::MajorityBits) | which key may have more than half? | none, if there is one | 32; 1,032 |
//! | [`InnerProduct`] | how large is the join of two streams? | given with the answer | those of the sketches |
//! | [`overlap`] | how many keys do two sets share? | given with the answer | 5 MiB per set |
//! | [`bloom`]: plain, growing, with deletion | has this key been seen? | never a wrong no; a wrong yes at the rate δ | 1.44 log2(1/δ) bits per key |
//! | [`rolling`] | where does this string occur, which substrings are equal, where to cut? | matches are verified; hashes alone have a stated bound | a window; 4 per byte under edits |
//! | [`search`] | where do these strings occur in a text in memory? | none | depends on the patterns |
//! | [`hot_keys`] | what is hot, where and since when? | that of heavy hitters, over any window | a budget |
//!
//! The algorithms are those of a lecture on hashing (S. Jiang, Hash methods, Peking University
//! 2023); the tests state and check its theorems.
//!
//! Invariants:
//! * A key is passed as its [`torc_record::Digest`], computed once; nothing here hashes it again,
//!   except [`overlap`], whose digests have no namespace.
//! * All randomness comes from a seed argument: the same seed and stream give the same bytes on
//!   every host.
//! * Sketches of counts are linear: sums, differences and windows of sketches equal sketches of the
//!   summed, subtracted or windowed streams.
//! * No bytes, however hostile, make a decoder panic, loop, or allocate beyond the caller's limit.
//!
//! Absent on purpose: clocks, threads, files; storing and sending snapshots (the server does that);
//! the Bloom gate of sealed records (`torc-index`).
//!
//! Examples that use these structures on files and streams, `cargo run --release -p torc-sketch
//! --example NAME`:
//!
//! | example | does |
//! |---|---|
//! | `heavy_hitters`, `matrix_search` | the lecture's exercises; `--judge` reads the input format of an online judge |
//! | `one_hit_wonders` | a cache that stores an object on its second request |
//! | `cache_digests` | caches that exchange summaries of their content |
//! | `bloom_join` | a join of two files that skips rows without a partner |
//! | `seen_before` | an archive that stores a chunk once, a limit of recipients, unread articles |
//! | `safe_browsing` | a client that asks a server about few URLs, and misses no malicious one |
//! | `substrings` | prefix, substring and concatenation: first difference, longest repeat, the hash of a whole from its parts |
//! | `edit` | a string under insertion and deletion, hashed and compared at any time |
//! | `pattern_hashes` | a search for patterns that stores only their hashes |

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
pub mod lecture;
mod majority;
pub mod overlap;
pub mod rolling;
pub mod search;
mod seed;
#[cfg(test)]
mod testing;

pub use count_min::{CombineError, CountMin, DecodeError, InnerProduct, Shape, ShapeError};
pub use heavy_hitters::{HeavyHitter, HeavyHitters};
pub use majority::MajorityCounter;
pub use seed::SeedStream;

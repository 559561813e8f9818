//! The rolling hash of Karp and Rabin (1987), and structures built on it.
//!
//! A string is a number in base 256, and its hash is that number modulo a random prime q: `h(S) =
//! sum of S_i 256^(n-i) mod q`. Hence the lecture's rules (S. Jiang, Hash methods, 2023):
//! `h(S[i..j]) = h(S[..j]) - 256^(j-i) h(S[..i])` and `h(S || T) = 256^|T| h(S) + h(T)`.
//!
//! *Collisions*: S and T of n bytes collide if q divides their difference, a number below 2^(8n),
//! which has at most 8n/53 prime factors above 2^53. [`Modulus`] draws q uniformly from the primes
//! between 2^53 and 2^54, more than 1.4e14 (Rosser and Schoenfeld 1962), so Pr\[h(S) = h(T)\] <=
//! 1.1e-15 n for strings fixed before q is drawn. So the author of the strings must not know the
//! seed. The searches verify their matches, so even a known seed causes no wrong answers, only more
//! time.
//!
//! | type | use |
//! |---|---|
//! | [`Fingerprint`], [`PrefixHashes`] | substrings in O(1), concatenation in O(1) |
//! | [`Moduli`], [`HashedPatterns`] | several primes at once; patterns stored as hashes only |
//! | [`Patterns`], [`Searcher`] | several patterns in a stream, with bounded work per step |
//! | [`Chunker`] | chunk boundaries that depend on content, not on offsets |

mod chunker;
mod fingerprint;
mod hashed;
mod moduli;
mod modulus;
mod patterns;
mod searcher;
mod window;

pub use chunker::{CHUNK_WINDOW, ChunkSizes, ChunkSizesError, Chunker, MAX_CHUNK};
pub use fingerprint::{Fingerprint, PrefixHashes};
pub use hashed::{Candidate, HashedPatterns, HashedPatternsError};
pub use moduli::{MAX_MODULI, Moduli, ModuliError};
pub use modulus::Modulus;
pub use patterns::{MAX_PATTERN_LEN, MAX_PATTERNS, PatternError, Patterns};
pub use searcher::{Match, Scan, Searcher};

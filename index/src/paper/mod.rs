//! What the paper describes and slices do not use: GigaHash, and its way to make one function of many
//! parts. For `torc-bench`, the examples and the comparison in `docs/decisions/mphf.md`.

pub mod gigahash;
mod stitched;

pub use stitched::{StitchError, Stitched};

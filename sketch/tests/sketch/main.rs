//! Bounds of the sketches, and the examples.

#![allow(missing_docs, reason = "tests")]

mod examples;
mod hot_keys;

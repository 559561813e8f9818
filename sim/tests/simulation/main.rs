//! The simulation: seeds, mutants, generations.

#![allow(missing_docs, reason = "tests")]

mod generations;
mod mutants;
mod seeds;

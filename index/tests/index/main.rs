//! What is built is found again, and what is damaged is refused.

#![allow(missing_docs, reason = "tests")]

mod examples;
mod gate;
mod gigahash;
mod keyless;
mod mphf;
mod words;

//! Builds of generations, alone and in tasks.

#![allow(missing_docs, reason = "tests")]

mod build;
mod tasks;

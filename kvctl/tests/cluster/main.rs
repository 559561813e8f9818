//! A cluster of real processes, used as its users use it.
#![allow(missing_docs)]

mod commands;
mod data;
mod join;
mod processes;
mod traffic;

//! A cluster of real processes, used like a user would.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod admin;
mod alter;
mod backup;
mod bench;
mod book;
mod browser;
mod chaos;
mod commands;
mod console;
mod creations;
mod data;
mod doctor;
mod enrolment;
mod examples;
mod generations;
mod hot;
mod join;
mod merges;
mod objects;
mod plan;
mod pod;
mod processes;
mod proxy;
mod redis;
mod replicas;
mod restart;
mod rotation;
mod secure;
mod shapes;
mod strangers;
mod top;
mod tour;
mod traffic;

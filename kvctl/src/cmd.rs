//! One command a file: its arguments, and a `run` that carries it out.

pub(crate) mod abort;
pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod certificates;
mod change;
pub(crate) mod completions;
pub(crate) mod delete;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod generate_urls;
pub(crate) mod generation;
pub(crate) mod get;
pub(crate) mod hot_keys;
pub(crate) mod join_node;
pub(crate) mod leave_node;
pub(crate) mod load;
pub(crate) mod maintenance;
pub(crate) mod namespace;
pub(crate) mod put;
pub(crate) mod replace_node;
pub(crate) mod reweight_node;
pub(crate) mod ring;
pub(crate) mod scan;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod top;

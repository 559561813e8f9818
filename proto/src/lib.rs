//! Torc's gRPC interface, package `torc.v1`, and the only conversion between its
//! messages and the domain types.
//!
//! The interface itself is in `proto/torc/v1/*.proto`, written to be read. The code
//! in [`v1`] is generated from it at build time by a pure-Rust compiler.
//!
//! Everything that comes off the wire is checked here before it becomes a domain
//! type: lengths of keys, values and digests, enum numbers, counts.

mod access;
pub mod codec;
mod config;
mod convert;
mod fault;
mod generation;
mod headers;
pub mod link;
pub mod load;
mod names;
mod namespaces;
mod scan;
mod secret;
mod states;
mod topology;
mod trace;
mod transition;

pub use access::Access;
pub use convert::{
    WireError, condition_from_wire, condition_to_wire, digest_from_wire, version_from_wire,
    version_to_wire,
};
pub use fault::{DATA_DIR_ADVICE, Fault, Reason, deepest, speaks_no_grpc};
pub use generation::{generation_shape_from_wire, generation_to_wire};
pub use headers::{bearer_of, timeout_of};
pub use names::{CLUSTER_HEADER, NODE_HEADER, Names, wrong_cluster};
pub use namespaces::{find_namespace, namespace_of};
pub use scan::ScanPosition;
pub use topology::{
    digests_from_wire, member_to_wire, merge_topology, namespace_to_wire, partition_state_to_wire,
    topology_to_wire,
};
pub use trace::{TRACEPARENT, TraceContext};
pub use transition::{
    change_kind_to_wire, losses_to_wire, replaced, replicas_after, transition_to_wire,
};

/// Largest gRPC message that a client may send, bytes: a batch's worth of values.
pub const MAX_MESSAGE_LEN: usize = 16 << 20;

/// Bytes of slices in a message of `CopySlices`. Buffers of this size stay in the CPU cache and are reused on both
/// sides; larger ones are mapped and cleared again each time.
pub const MESSAGE_BYTES: usize = 1 << 17;

/// Limit on the slices that a request for slices lists as present.
pub const MAX_HAVE: usize = 256;

/// Most items of one batch.
pub const MAX_BATCH_ITEMS: usize = 1_000;

/// Most keys of a namespace whose accesses a request for its sketch may contain.
pub const MAX_KEY_WEIGHTS: usize = 1_000;

/// The interface, encoded as a `google.protobuf.FileDescriptorSet` for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Generated messages, clients and servers.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("torc.v1");
}

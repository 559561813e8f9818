//! Torc's client library for Rust.
//!
//! ```no_run
//! # async fn example() -> Result<(), torc_client::Error> {
//! use torc_client::Client;
//!
//! let client = Client::connect(["http://127.0.0.1:7401", "http://127.0.0.1:7402"]).await?;
//! let version = client.put("user/1", "Ada").await?;
//! let value = client.get("user/1").await?.expect("just put");
//! assert_eq!((value.value, value.version), ("Ada".into(), version));
//! client.delete("user/1").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Conditional writes and error handling:
//!
//! ```no_run
//! # async fn example(client: torc_client::Client) -> Result<(), torc_client::Error> {
//! use torc_client::{Condition, ErrorKind, PutOptions};
//!
//! let first = PutOptions { condition: Some(Condition::IfAbsent), ..PutOptions::default() };
//! match client.put_with("lock", "me", first).await {
//!     Ok(version) => println!("mine, version {version}"),
//!     Err(error) if error.kind() == ErrorKind::ConditionNotMet => println!("taken"),
//!     Err(error) if error.maybe_applied() => println!("read it to know: {error}"),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Many keys, and all of them:
//!
//! ```no_run
//! # async fn example(client: torc_client::Client) -> Result<(), torc_client::Error> {
//! use futures::StreamExt as _;
//! use torc_client::ScanOptions;
//!
//! for (key, outcome) in ["a", "b"].iter().zip(client.batch_put([("a", "1"), ("b", "2")]).await?) {
//!     println!("{key}: {}", outcome?);
//! }
//! let mut records = client.scan(ScanOptions::default());
//! while let Some(record) = records.next().await {
//!     let record = record?;
//!     println!("{} bytes under {:?}", record.value.len(), record.key);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The library knows the ring and sends every operation to the lead of its partition. It
//! fetches a newer topology when a node reports its own as stale. If an address does not
//! answer, it reaches the node through others; if the lead does not answer, it uses another
//! replica, and it sends a slow get to a second one. Operations on single keys share
//! streams. Gets of hot keys are spread over their replicas, and identical concurrent ones
//! share a request. It retries until the deadline what is safe to retry, and cuts batches
//! and scans by node.
//!
//! Invariants:
//! * A write of unknown outcome is never sent twice.
//! * Every operation ends by its deadline (a scan: every step of it).
//! * A key is hashed once per operation, here; requests carry the digest.
//! * A get shares only the answer to a request that was sent after the get started.
//! * No global state, no threads; tasks only for connections, on the caller's Tokio
//!   runtime.
//!
//! Pure, and tested as such: retries (`retry`), addresses to avoid (`breaker`), hedging (`hedge`),
//! hot keys (`hot::table`), cutting batches (`batch::plan`), the position of a scan (`scan::walk`).
//!
//! Absent on purpose: caching of values (they would be stale), and timers that delay
//! operations to fill batches.

#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, reason = "tests count small numbers")
)]

mod admin;
mod answers;
mod backup;
mod batch;
mod breaker;
mod builder;
mod call;
mod client;
mod cluster;
mod core;
mod error;
mod generations;
mod hedge;
mod hot;
mod naming;
mod options;
mod overlap;
mod peer;
mod race;
mod retry;
mod rotation;
mod scan;
mod tokens;
mod trace;
mod view;

pub use answers::{Deleted, Entry, Value, ValueMatch};
pub use backup::{BackupProgress, BackupRequest};
pub use builder::ClientBuilder;
pub use client::Client;
pub use cluster::{
    Change, ChangeKind, ClusterStatus, Explanation, FieldJoin, FieldJoinEstimate, FieldJoinSide,
    Generation, GenerationContent, GenerationShape, GenerationState, HotEstimate, HotHistory,
    HotKey, HotKeyNode, HotKeys, HotMajority, HotNode, LayerStatus, LoadSample, Losses, Member,
    MemberState, MissingSlices, Namespace, NamespaceMode, NodeMaintenance, NodeShare, NodeStatus,
    Overlap, OverlapEstimate, OverlapJoin, OverlapSet, Plan, Position, Quorum, RecordKind,
    ReplicaRecord, Reservation, SliceTrace, SliceVerdict, Stage, Transition,
};
pub use error::{Error, ErrorKind};
pub use hot::HotGets;
pub use options::{
    AlterOptions, Consistency, GetOptions, GoOptions, HotKeysOptions, OverlapOptions, PutOptions,
    QuorumSize, ScanOptions,
};
pub use rotation::{Authorities, RotationAction, RotationMember};
pub use scan::{Scan, ScanCursor};
pub use tokens::{CreatedJoinToken, CreatedToken, NewToken, TokenInfo};
pub use torc_proto::TraceContext;
pub use torc_record::{Condition, Epoch, MAX_KEY_LEN, MAX_VALUE_LEN, NodeSlot};
pub use torc_ring::topology::{
    BearerId, ClusterId, Role, Roles, RotationStep, RoutingTable, Scope,
};
pub use torc_ring::{NodeId, Partition, Token, Zone};
pub use torc_tls::{ClientTls, TlsError};
pub use trace::ClientSpan;

/// The version of a record, `epoch.time.slot` as text. Versions of one key are totally
/// ordered; a later write has a greater one.
pub type Version = torc_record::Ballot;

//! The peers, if they are installed.

use std::path::Path;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::subject::Subject;
use super::{etcd, memcached, redis};

/// A peer, if it is installed.
pub(super) type Started<'a> = LocalBoxFuture<'a, Result<Option<Box<dyn Subject>>>>;

/// Starts a peer with its files in a directory.
type Start = fn(&Path) -> Started<'_>;

/// The peers and how to start them.
pub(super) const PEERS: [(&str, Start); 4] = [
    (redis::Durability::None.name(), |dir| {
        Box::pin(redis::start(dir, redis::Durability::None))
    }),
    (redis::Durability::Aof.name(), |dir| {
        Box::pin(redis::start(dir, redis::Durability::Aof))
    }),
    (memcached::NAME, |_| Box::pin(memcached::start())),
    (etcd::NAME, |dir| Box::pin(etcd::start(dir))),
];

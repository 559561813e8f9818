//! Turns a request into a checked target: limits, namespace, digest, partition.

use bytes::Bytes;
use torc_proto::v1::{self, Consistency};
use torc_proto::{Fault, Reason, WireError, digest_from_wire, find_namespace, namespace_of};
use torc_record::{Condition, Key, MAX_VALUE_LEN, NamespaceId, RecordError};
use torc_replication::{Locator, Quorum, Rules};
use torc_ring::Partition;
use torc_ring::topology::{Namespace, NamespaceMode, RoutingTable};

/// One key of one namespace, and the rules of its replicas.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) at: Locator,
    pub(super) partition: Partition,
    pub(super) rules: Rules,
}

/// The rules for a key, from its namespace's mode and the requested quorum.
fn rules_of(mode: NamespaceMode, asked: i32) -> Result<Rules, Fault> {
    let asked = v1::Quorum::try_from(asked).map_err(|_| {
        let message = "the request has a quorum that this release does not know";
        Fault::new(Reason::Invalid, message)
    })?;
    let quorum = match asked {
        v1::Quorum::One => Quorum::One,
        v1::Quorum::Unspecified | v1::Quorum::Majority => Quorum::Majority,
        v1::Quorum::All => Quorum::All,
    };
    match mode {
        NamespaceMode::Eventual => Ok(Rules::Eventual(quorum)),
        NamespaceMode::Linearizable if asked == v1::Quorum::Unspecified => Ok(Rules::Linearizable),
        NamespaceMode::Static if asked == v1::Quorum::Unspecified => Ok(Rules::Static),
        NamespaceMode::Linearizable => Err(Fault::new(
            Reason::Invalid,
            "only eventual namespaces allow a choice of quorum, but this one is linearizable: \
             omit it",
        )),
        NamespaceMode::Static => Err(Fault::new(
            Reason::Invalid,
            "only eventual namespaces allow a choice of quorum, but this one is static: omit it",
        )),
    }
}

impl Target {
    /// Checks a request's key. Always computes the digest, even if the request carries one: a get
    /// may write (read repair), so no operation may trust a wrong digest.
    pub(super) fn check(
        table: &RoutingTable,
        namespace: &str,
        key: Bytes,
        digest: &[u8],
        route: Option<v1::Route>,
        quorum: i32,
    ) -> Result<Self, Fault> {
        let key = Key::new(key).map_err(WireError::from)?;
        let name = namespace;
        let Namespace {
            id: namespace,
            mode,
            ..
        } = namespace_of(table, name)?;
        let rules = rules_of(mode, quorum)?;
        let given = digest_from_wire(digest)?;
        let digest = table.digest(namespace, key.as_bytes());
        if given.is_some_and(|given| given != digest) {
            return Err(if rules == Rules::Static {
                other_generation(table, name)
            } else {
                foreign_digest()
            });
        }
        if rules == Rules::Static && !namespace.is_generation() {
            return Err(no_generation(name));
        }
        let partition = table.partition_of(namespace, &digest);
        if route
            .as_ref()
            .is_some_and(|route| route.partition != partition.0)
        {
            let message = format!(
                "the key belongs to partition {partition}, but the request was routed to another"
            );
            return Err(Fault::new(Reason::Invalid, message));
        }
        let at = Locator {
            namespace,
            digest,
            key,
        };
        Ok(Self {
            at,
            partition,
            rules,
        })
    }

    /// Refuses writes whose guarantees the namespace's mode cannot give.
    pub(super) fn check_write(&self, condition: Option<Condition>) -> Result<(), Fault> {
        if self.rules == Rules::Static {
            let message = "a static namespace accepts no writes, and nothing was changed: replace its content with `kvctl generation \
                           promote`";
            return Err(Fault::new(Reason::Invalid, message));
        }
        if condition.is_none() || self.rules == Rules::Linearizable {
            return Ok(());
        }
        let message = "an eventual namespace does not support conditions, because the last writer wins: \
                       omit the condition, or use a linearizable namespace";
        Err(Fault::new(Reason::Invalid, message))
    }

    /// Refuses consistency levels that an eventual namespace cannot give.
    pub(super) fn check_consistency(&self, asked: Consistency) -> Result<(), Fault> {
        let is_eventual = matches!(self.rules, Rules::Eventual(_));
        if asked != Consistency::Linearizable || !is_eventual {
            return Ok(());
        }
        let message = "an eventual namespace has no linearizable reads: omit the consistency, \
                       or use a linearizable namespace";
        Err(Fault::new(Reason::Invalid, message))
    }
}

/// The request's digest belongs to another key or another cluster.
pub(super) fn foreign_digest() -> Fault {
    Fault::new(
        Reason::DigestMismatch,
        "the digest does not match the key in this cluster, and nothing was changed: refresh the \
         topology to get the digest key, or omit the digest",
    )
}

/// The sender's topology and this node's name different current generations.
pub(super) fn other_generation(table: &RoutingTable, name: &str) -> Fault {
    let message = format!(
        "the request is for an older generation of `{name}`: refresh the topology \
         and retry"
    );
    Fault::new(Reason::StaleEpoch, message).at(table.epoch)
}

fn no_generation(name: &str) -> Fault {
    let message = format!(
        "the static namespace `{name}` has no content yet: promote a generation, see `kvctl \
         generation list {name}`"
    );
    Fault::new(Reason::Invalid, message)
}

/// The generation that a request names. Zero names the current one.
pub(super) fn generation_of(
    table: &RoutingTable,
    name: &str,
    named: u32,
) -> Result<NamespaceId, Fault> {
    let now = find_namespace(table, name)?;
    let began_with = NamespaceId(named);
    if named == 0 || began_with == now {
        return Ok(now);
    }
    let known = table.generations.get(&began_with);
    if known.is_some_and(|known| known.namespace == name) {
        return Ok(began_with);
    }
    let message = "this node does not know the generation that the request reads: refresh the topology; if \
                   it was dropped, start again";
    Err(Fault::new(Reason::StaleEpoch, message).at(table.epoch))
}

pub(super) fn check_value(value: &Bytes) -> Result<(), Fault> {
    if value.len() > MAX_VALUE_LEN {
        return Err(WireError::from(RecordError::ValueTooLong { len: value.len() }).into());
    }
    Ok(())
}

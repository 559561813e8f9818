//! Checks an `eventual` key's history as clients see it.
//!
//! * A read that starts after a write was acknowledged finds that version or a later one.
//! * A version has one value, and a client wrote it.
//! * A key is absent only if a delete may be later than all acknowledged writes.

use std::collections::BTreeMap;

use torc_client::Version;
use torc_sim::check::Verdict;
use torc_sim::history::{Kind, Operation, Seen, Value};

use super::recorder::{Recorded, ttl_of};

/// Judges one key's history, which must only have reads and writes of majorities.
pub(super) fn verdict(key: &Recorded) -> Verdict {
    let operations = key.history.operations.iter().zip(&key.versions);
    let operations: Vec<_> = operations.map(|(it, version)| (*it, *version)).collect();
    let mut values: BTreeMap<Version, Value> = BTreeMap::new();
    for (operation, version) in &operations {
        let value = match (operation.kind, operation.seen) {
            (Kind::Put(value), Seen::Done) | (Kind::Get, Seen::Value(value)) => value,
            (Kind::Erase, Seen::Done) => 0,
            _ => continue,
        };
        if let Some(version) = version
            && *values.entry(*version).or_insert(value) != value
        {
            return Verdict::Violation;
        }
    }
    let is_wrong = |(get, version): &(Operation, Option<Version>)| match (get.kind, get.seen) {
        (Kind::Get, Seen::Value(value)) => is_wrong(&operations, get, value, *version),
        _ => false,
    };
    if operations.iter().any(is_wrong) {
        Verdict::Violation
    } else {
        Verdict::Linearizable
    }
}

fn is_wrong(
    operations: &[(Operation, Option<Version>)],
    get: &Operation,
    value: Value,
    found: Option<Version>,
) -> bool {
    let is_write = |it: &Operation| matches!(it.kind, Kind::Put(_) | Kind::Erase);
    let before = operations
        .iter()
        .filter(|(it, _)| is_write(it) && it.ret < get.call);
    let floor = before.filter_map(|(_, version)| *version).max();
    if let Some(found) = found {
        let wrote = |(it, _): &(Operation, _)| it.kind == Kind::Put(value) && it.call < get.ret;
        return Some(found) < floor || !operations.iter().any(wrote);
    }
    let may_erase = |kind| match kind {
        Kind::Put(value) => ttl_of(value).is_some(),
        kind => kind == Kind::Erase,
    };
    let may_have_erased = |(it, version): &(Operation, Option<Version>)| {
        may_erase(it.kind) && it.call < get.ret && (version.is_none() || *version >= floor)
    };
    floor.is_some() && !operations.iter().any(may_have_erased)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::{Epoch, HybridTime, NodeSlot};

    fn version(time: u64) -> Version {
        Version {
            epoch: Epoch(1),
            time: HybridTime(time),
            slot: NodeSlot(0),
        }
    }

    fn judged(operations: &[(Kind, Seen, u64, u64, Option<Version>)]) -> Verdict {
        let mut key = Recorded::default();
        for (kind, seen, call, ret, version) in operations {
            key.history.operations.push(Operation {
                kind: *kind,
                seen: *seen,
                call: *call,
                ret: *ret,
                ret_ms: 0,
            });
            key.versions.push(*version);
        }
        verdict(&key)
    }

    #[test]
    fn an_acknowledged_write_that_a_later_read_misses_is_a_violation() {
        let put = (Kind::Put(1), Seen::Done, 1, 2, Some(version(7)));
        let erased = (Kind::Erase, Seen::Unknown, 3, u64::MAX, None);
        let found = |value, time| (Kind::Get, Seen::Value(value), 4, 5, Some(version(time)));
        let absent = (Kind::Get, Seen::Value(0), 4, 5, None);
        assert_eq!(judged(&[put, found(1, 7)]), Verdict::Linearizable);
        assert_eq!(judged(&[put, absent]), Verdict::Violation);
        assert_eq!(judged(&[put, erased, absent]), Verdict::Linearizable);
        assert_eq!(
            judged(&[put, found(2, 9)]),
            Verdict::Violation,
            "nobody wrote it"
        );
        let other = (Kind::Put(2), Seen::Unknown, 1, u64::MAX, None);
        assert_eq!(judged(&[put, other, found(2, 9)]), Verdict::Linearizable);
        assert_eq!(
            judged(&[put, other, found(2, 6)]),
            Verdict::Violation,
            "an older one"
        );
    }
}

//! Members and foundings for tests.

use torc_record::DigestKey;
use torc_ring::topology::{ClusterId, Founding, Incarnation, NewMember};
use torc_ring::{Partitions, Weight, Zone};

pub(in super::super) fn member(number: u8, address: &str) -> NewMember {
    NewMember {
        incarnation: Incarnation([number; 16]),
        address: address.to_owned(),
        http_address: String::new(),
        zone: Zone::default(),
        weight: Weight::NORMAL,
    }
}

/// A small cluster of `nodes`, with one replica.
pub(in super::super) fn founding(nodes: u8) -> Founding {
    Founding {
        cluster: ClusterId([9; 16]),
        digest_key: DigestKey([1; 32]),
        partitions: Partitions::new(16).unwrap(),
        replicas: 1,
        positions: 2,
        members: (1..=nodes)
            .map(|n| member(n, &format!("127.0.0.1:{n}")))
            .collect(),
    }
}

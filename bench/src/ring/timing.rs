//! Time of lookups and plans on a ring with many nodes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use pingora_ketama::Continuum;
use torc_record::{Digest, DigestKey, NamespaceId};
use torc_ring::{
    Change, NodeId, NodeSpec, Partitions, Placement, Ring, Token, TransitionPlan, allocate,
};

use super::ketama::{self, KETAMA};
use super::{POSITIONS, REPLICAS};
use crate::records;
use crate::report::{Metric, Report, TORC};

pub(super) const LOOKUP: Metric = Metric::new("lookup", "ns");
const TIME: Metric = Metric::new("time", "ms");
const KEY_CASE: &str = "replicas of a key, hashed";
const JOIN_CASE: &str = "the last join planned";
const PARTITIONS: Partitions = Partitions::DEFAULT;

/// Both rings, and a ring with one node fewer, from which the last join is planned.
pub(super) struct Rings {
    nodes: u32,
    specs: BTreeMap<NodeId, NodeSpec>,
    before: Ring,
    ring: Ring,
    peer: Continuum,
}

impl Rings {
    pub(super) fn grow(nodes: u32) -> Result<Self> {
        let ids = (0..nodes).map(|node| NodeId(u64::from(node)));
        let specs = ids.map(|id| (id, NodeSpec::normal(id))).collect();
        let mut rings = Self {
            nodes,
            specs,
            before: Ring::new(),
            ring: Ring::new(),
            peer: ketama::ring(nodes as u16),
        };
        for node in 0..nodes {
            let joined = rings.join(&rings.ring, NodeId(u64::from(node)))?;
            rings.before = std::mem::replace(&mut rings.ring, joined);
        }
        Ok(rings)
    }

    fn join(&self, ring: &Ring, node: NodeId) -> Result<Ring> {
        let change = Change::Join(node);
        Ok(allocate(
            ring,
            PARTITIONS,
            REPLICAS,
            POSITIONS,
            &self.specs,
            change,
        )?)
    }

    fn place(&self, ring: &Ring) -> Placement {
        Placement::compute(ring, PARTITIONS, REPLICAS, &self.specs)
    }

    /// One round.
    pub(super) fn measure(&self, report: &mut Report, quick: bool) -> Result<()> {
        let lookups = if quick { 10_000 } else { 2_000_000 };
        self.look_up_tokens(report, lookups);
        self.look_up_keys(report, lookups);
        self.plan(report)
    }

    fn look_up_tokens(&self, report: &mut Report, lookups: usize) {
        let placement = self.place(&self.ring);
        let mut random = records::Random::of(2);
        let tokens: Vec<Token> = (0..1 << 16).map(|_| Token(random.next())).collect();
        let took = each(&tokens, lookups, |token| {
            black_box(self.ring.successor(*token));
        });
        report.add("successor of a token", LOOKUP, TORC, took);
        let took = each(&tokens, lookups, |token| {
            black_box(placement.locate(*token));
        });
        report.add(
            "replicas of a token, from the placement",
            LOOKUP,
            TORC,
            took,
        );
    }

    fn look_up_keys(&self, report: &mut Report, lookups: usize) {
        let placement = self.place(&self.ring);
        let cluster = DigestKey([7; 32]);
        let keys: Vec<Vec<u8>> = (0..1 << 16).map(records::key).collect();
        let took = each(&keys, lookups, |key| {
            let digest = Digest::of(&cluster, NamespaceId::DEFAULT, key);
            black_box(placement.locate(Token::of(&digest)));
        });
        report.add(KEY_CASE, LOOKUP, TORC, took);
        let took = each(&keys, lookups, |key| {
            black_box(ketama::holders(&self.peer, self.nodes as u16, key));
        });
        report.add(KEY_CASE, LOOKUP, KETAMA, took);
    }

    fn plan(&self, report: &mut Report) -> Result<()> {
        let started = Instant::now();
        black_box(self.place(&self.ring));
        report.add(
            "placement of all partitions",
            TIME,
            TORC,
            ms(started.elapsed()),
        );

        let newcomer = NodeId(u64::from(self.nodes - 1));
        let started = Instant::now();
        let after = self.join(&self.before, newcomer)?;
        let plan = TransitionPlan::between(&self.place(&self.before), &self.place(&after));
        black_box(plan);
        report.add(JOIN_CASE, TIME, TORC, ms(started.elapsed()));
        let started = Instant::now();
        black_box(ketama::ring(self.nodes as u16));
        report.add(JOIN_CASE, TIME, KETAMA, ms(started.elapsed()));
        Ok(())
    }
}

/// Nanoseconds that `work` takes per item, repeated `times` times.
pub(super) fn each<T>(items: &[T], times: usize, mut work: impl FnMut(&T)) -> f64 {
    let started = Instant::now();
    items.iter().cycle().take(times).for_each(&mut work);
    started.elapsed().as_secs_f64() * 1e9 / times as f64
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

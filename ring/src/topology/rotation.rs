//! Rotation of a secure cluster's authority: the trusted authorities and the issuing one.
//!
//! A rotation has three steps, and each waits until every member has finished the previous one.
//! First, all members trust the new authority beside the old one, and have its key. Then the new
//! one issues certificates, the members' own first. Then members trust the new one alone. So no
//! member ever presents a certificate that another one does not trust.
//!
//! Certificates are text here: nodes read them. Keys are never in the topology.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Outcome, RotationStep, Topology, TopologyError};
use crate::NodeId;

/// Longest certificate of an authority, in PEM. One of ours has some 700 bytes.
pub const MAX_AUTHORITY_LEN: usize = 8 << 10;

/// The authorities of a cluster that has started at least one rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorities {
    /// The number of the latest rotation.
    pub rotation: u32,
    /// Its step.
    pub step: RotationStep,
    /// The trusted authorities, in PEM. The first issues certificates.
    pub trusted: Vec<String>,
    /// The members that have finished the step.
    pub done: BTreeSet<NodeId>,
}

impl Authorities {
    /// Checks the two certificates of a rotation.
    pub(super) fn check(old: &str, new: &str) -> Result<(), TopologyError> {
        let fits = |it: &str| (1..=MAX_AUTHORITY_LEN).contains(&it.len());
        if fits(old) && fits(new) && old != new {
            return Ok(());
        }
        let allowed = "two certificates of at most 8 KiB";
        Err(TopologyError::setting("authorities", allowed))
    }

    fn enter(&mut self, step: RotationStep) {
        self.step = step;
        self.done.clear();
    }
}

impl Topology {
    /// The authorities, once a rotation has started. Before, every node has one in its directory.
    #[must_use]
    pub fn authorities(&self) -> Option<&Authorities> {
        self.stored.authorities.as_ref()
    }

    /// Members that have not finished the present step of a rotation, without those written off.
    #[must_use]
    pub fn rotation_waits_for(&self) -> Vec<NodeId> {
        let Some(authorities) = self.authorities() else {
            return Vec::new();
        };
        let members = self.stored.members.keys();
        let counts =
            |node: &&NodeId| !authorities.done.contains(node) && !self.stored.dead.contains(node);
        members.filter(counts).copied().collect()
    }

    pub(super) fn begin_rotation(
        &mut self,
        old: String,
        new: String,
    ) -> Result<Outcome, TopologyError> {
        let known = self.stored.authorities.as_ref();
        let rotation = match known {
            None => 1,
            Some(known) if known.step != RotationStep::Finished => {
                return Err(TopologyError::Rotating);
            }
            // The rotation was planned on an authority that another rotation has replaced since.
            Some(known) if known.trusted != [old.as_str()] => {
                return Err(TopologyError::Rotating);
            }
            Some(known) => known.rotation + 1,
        };
        self.stored.authorities = Some(Authorities {
            rotation,
            step: RotationStep::Trust,
            trusted: vec![old, new],
            done: BTreeSet::new(),
        });
        self.advance_epoch();
        Ok(Outcome::Done)
    }

    pub(super) fn rotate(
        &mut self,
        rotation: u32,
        to: RotationStep,
    ) -> Result<Outcome, TopologyError> {
        let step = self.rotation(rotation)?.step;
        let before = match to {
            _ if step >= to => return Ok(Outcome::Done),
            RotationStep::Trust | RotationStep::Issue => RotationStep::Trust,
            RotationStep::Finished => RotationStep::Issue,
        };
        if step != before {
            return Err(TopologyError::RotationStep { step, to });
        }
        let waiting = self.rotation_waits_for();
        if !waiting.is_empty() {
            return Err(TopologyError::RotationWaits { waiting });
        }
        let authorities = self.rotation(rotation)?;
        match to {
            RotationStep::Trust | RotationStep::Issue => authorities.trusted.reverse(),
            RotationStep::Finished => authorities.trusted.truncate(1),
        }
        authorities.enter(to);
        self.advance_epoch();
        Ok(Outcome::Done)
    }

    /// Only until the new authority issues certificates: before, nothing depends on it.
    pub(super) fn abort_rotation(&mut self, rotation: u32) -> Result<Outcome, TopologyError> {
        let authorities = self.rotation(rotation)?;
        match authorities.step {
            RotationStep::Trust => {}
            RotationStep::Issue => return Err(TopologyError::RotationIssues),
            RotationStep::Finished => return Ok(Outcome::Done),
        }
        authorities.trusted.truncate(1);
        authorities.enter(RotationStep::Finished);
        self.advance_epoch();
        Ok(Outcome::Done)
    }

    /// Late reports, and those of removed nodes, are ignored.
    pub(super) fn rotation_done(
        &mut self,
        node: NodeId,
        rotation: u32,
        step: RotationStep,
    ) -> Outcome {
        let is_member = self.stored.members.contains_key(&node);
        if let Ok(authorities) = self.rotation(rotation)
            && authorities.step == step
            && is_member
        {
            authorities.done.insert(node);
        }
        Outcome::Done
    }

    fn rotation(&mut self, number: u32) -> Result<&mut Authorities, TopologyError> {
        let known = self.stored.authorities.as_mut();
        let known = known.filter(|known| known.rotation == number);
        known.ok_or(TopologyError::NoRotation)
    }
}

//! States that both sides name in the same way.

use torc_ring::topology::{MemberState, NamespaceMode, Stage};

use crate::convert::WireError;
use crate::v1;

impl From<NamespaceMode> for v1::NamespaceMode {
    fn from(mode: NamespaceMode) -> Self {
        match mode {
            NamespaceMode::Linearizable => Self::Linearizable,
            NamespaceMode::Eventual => Self::Eventual,
            NamespaceMode::Static => Self::Static,
        }
    }
}

impl From<v1::NamespaceMode> for NamespaceMode {
    fn from(wire: v1::NamespaceMode) -> Self {
        match wire {
            v1::NamespaceMode::Linearizable | v1::NamespaceMode::Unspecified => Self::Linearizable,
            v1::NamespaceMode::Eventual => Self::Eventual,
            v1::NamespaceMode::Static => Self::Static,
        }
    }
}

impl From<MemberState> for v1::MemberState {
    fn from(state: MemberState) -> Self {
        match state {
            MemberState::Joining => Self::Joining,
            MemberState::Active => Self::Active,
            MemberState::Leaving => Self::Leaving,
        }
    }
}

impl TryFrom<v1::MemberState> for MemberState {
    type Error = WireError;

    fn try_from(wire: v1::MemberState) -> Result<Self, WireError> {
        match wire {
            v1::MemberState::Joining => Ok(Self::Joining),
            v1::MemberState::Active => Ok(Self::Active),
            v1::MemberState::Leaving => Ok(Self::Leaving),
            v1::MemberState::Unspecified => Err(WireError::Field { field: "state" }),
        }
    }
}

impl From<Stage> for v1::Stage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Stable => Self::Stable,
            Stage::Copying => Self::Copying,
            Stage::WriteBothReadOld => Self::WriteBothReadOld,
            Stage::WriteBothReadNew => Self::WriteBothReadNew,
        }
    }
}

impl TryFrom<v1::Stage> for Stage {
    type Error = WireError;

    fn try_from(wire: v1::Stage) -> Result<Self, WireError> {
        match wire {
            v1::Stage::Stable => Ok(Self::Stable),
            v1::Stage::Copying => Ok(Self::Copying),
            v1::Stage::WriteBothReadOld => Ok(Self::WriteBothReadOld),
            v1::Stage::WriteBothReadNew => Ok(Self::WriteBothReadNew),
            v1::Stage::Unspecified => Err(WireError::Field { field: "stage" }),
        }
    }
}

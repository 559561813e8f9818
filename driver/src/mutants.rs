//! The rule of the registers that a test build breaks.
//!
//! The program `kvd-mutant` is `kvd` built with the feature `mutants`. It breaks the rule that
//! `TORC_TEST_MUTANT` names, so tests of real clusters can prove that they detect the broken
//! rule. Without the feature no rule can be broken, and the compiler removes the checks.
//!
//! Absent on purpose: the rules of a move's stages, which the topology group enforces.

use torc_replication::Mutations;

#[cfg(feature = "mutants")]
mod broken {
    use std::sync::OnceLock;

    use torc_replication::{Mutation, Mutations};

    static BROKEN: OnceLock<Mutation> = OnceLock::new();

    /// No rule has this name.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[error("`{0}` is not a rule: use one that `torc-sim mutants` prints")]
    pub struct UnknownMutant(String);

    /// Breaks the rule of this name in the whole process. Only the first call takes effect.
    ///
    /// # Errors
    /// [`UnknownMutant`]; no rule is broken.
    pub fn break_rule(name: &str) -> Result<(), UnknownMutant> {
        let unhyphened = name.replace('-', "");
        let is_it = |mutation: &Mutation| format!("{mutation:?}").eq_ignore_ascii_case(&unhyphened);
        let found = Mutation::ALL.into_iter().find(is_it);
        let mutation = found.ok_or_else(|| UnknownMutant(name.to_owned()))?;
        BROKEN.get_or_init(|| mutation);
        Ok(())
    }

    pub(super) fn rules() -> Mutations {
        BROKEN
            .get()
            .copied()
            .map_or(Mutations::NONE, Mutations::only)
    }
}

#[cfg(feature = "mutants")]
pub use broken::{UnknownMutant, break_rule};

/// The rules that this process breaks; empty in normal builds.
pub(crate) fn broken_rules() -> Mutations {
    #[cfg(feature = "mutants")]
    {
        broken::rules()
    }
    #[cfg(not(feature = "mutants"))]
    {
        Mutations::NONE
    }
}

//! R7: what became of a write whose accept was sent and did not succeed.

use std::sync::Arc;

use super::request::{Change, Current, apply};
use super::tally::Seen;
use super::{Coordinator, Intent, Outcome, Plan, RegisterOp};
use crate::{Config, Mutation, Now};

impl Coordinator {
    /// Versions tell, not ballots: whoever brought replicas together meanwhile accepted anew
    /// what was there, ours included, and left its version as it was.
    ///
    /// Along the versions that are chosen, versions never go down: an identity keeps the
    /// version, a write brings a higher one. A read quorum has promised a higher ballot than
    /// all of ours. So if the highest version it holds lies below all of ours, ours was never
    /// chosen and never can be: it is tried again. If it lies above, ours may have been
    /// chosen, seen and overwritten: nobody can tell.
    pub(super) fn resolve(
        &mut self,
        now: Now,
        op: Box<RegisterOp>,
        config: &Arc<Config>,
        seen: &Seen,
        current: &Current,
        out: &mut Vec<Intent>,
    ) {
        if op.own.mine.contains(&seen.version) {
            self.carry_forward(now, op, config, seen, out);
        } else if op.own.mine.iter().all(|mine| seen.version < *mine) {
            // As if for the first time, but always by an accept: that alone ends ours.
            let change = apply(&op.request, current);
            if self.mutations.has(Mutation::MismatchLeavesWish)
                && let Change::Keep(outcome) = change
            {
                return self.finish(&op, outcome, out);
            }
            self.carry_out(now, op, config, current, change, out);
        } else {
            self.finish(&op, Outcome::Unknown, out);
        }
    }

    fn carry_forward(
        &mut self,
        now: Now,
        op: Box<RegisterOp>,
        config: &Arc<Config>,
        seen: &Seen,
        out: &mut Vec<Intent>,
    ) {
        let Some(state) = seen.content.to_state() else {
            return self.finish(&op, Outcome::Unknown, out);
        };
        let plan = Plan {
            state,
            version: seen.version,
            outcome: Outcome::Written {
                existed: true,
                version: seen.version,
                fast: false,
            },
            requested: true,
            next: None,
            warm: false,
        };
        self.accept(now, op, config, plan, out);
    }
}

//! R7: what became of a write whose accept was sent and did not succeed.

use std::sync::Arc;

use super::request::{Current, apply};
use super::tally::Seen;
use super::{Coordinator, Intent, Op, Outcome, Plan};
use crate::{Config, Now};

impl Coordinator {
    /// Versions tell, not ballots: whoever brought replicas together meanwhile accepted anew
    /// what was there, ours included, and left its version as it was.
    ///
    /// A read quorum has promised a higher ballot than all of ours, so what it does not
    /// hold of ours can only come back through somebody who saw it elsewhere, and that
    /// shows as a version that is neither ours nor the one we began from.
    pub(super) fn resolve(
        &mut self,
        now: Now,
        op: Box<Op>,
        config: &Arc<Config>,
        seen: &Seen,
        current: &Current,
        out: &mut Vec<Intent>,
    ) {
        if op.mine.contains(&seen.version) {
            self.carry_forward(now, op, config, seen, out);
        } else if seen.version == op.predecessor {
            // As if for the first time, but always by an accept: that alone ends ours.
            let change = apply(&op.request, current);
            self.carry_out(now, op, config, current, change, out);
        } else {
            Self::finish(&op, Outcome::Unknown, out);
        }
    }

    fn carry_forward(
        &mut self,
        now: Now,
        op: Box<Op>,
        config: &Arc<Config>,
        seen: &Seen,
        out: &mut Vec<Intent>,
    ) {
        let Some(state) = seen.content.to_state() else {
            return Self::finish(&op, Outcome::Unknown, out);
        };
        let plan = Plan {
            state,
            version: seen.version,
            outcome: Outcome::Written {
                version: seen.version,
                fast: false,
            },
            wished: true,
            next: None,
            warm: false,
        };
        self.accept(now, op, config, plan, out);
    }
}

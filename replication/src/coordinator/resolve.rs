//! R7: what became of a write whose accept was sent and did not succeed.

use std::sync::Arc;

use torc_record::Ballot;

use super::request::{Change, Current, apply};
use super::tally::Seen;
use super::{Coordinator, Intent, Outcome, Plan, RegisterOp};
use crate::{Config, Mutation, Now, Recall, Votes};

impl Coordinator {
    /// Versions tell, not ballots: whoever brought replicas together meanwhile accepted anew
    /// what was there, ours included, and left its version as it was.
    ///
    /// Along the versions that are chosen, versions never go down: an identity keeps the
    /// version, a write brings a higher one. A read quorum has promised a higher ballot than
    /// all of ours. So if the highest version it holds lies below all of ours, ours was never
    /// chosen and never can be: it is tried again. If it lies above, ours may have been
    /// chosen, seen and overwritten. Replicas that remember know better. If so many never stored
    /// ours that no write quorum is left, ours was never chosen, and the promises of this round
    /// keep it from ever being. If a write quorum accepted it, it was chosen. Otherwise nobody can
    /// tell.
    pub(super) fn resolve(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        config: &Arc<Config>,
        seen: &Seen,
        current: &Current,
        out: &mut Vec<Intent>,
    ) {
        if op.own.mine.contains(&seen.version) {
            self.carry_forward(now, op, config, seen, out);
        } else if op.own.mine.iter().all(|mine| seen.version < *mine)
            || self.was_never_chosen(op.own.tally.remembering(Recall::Never), config)
        {
            // As if for the first time, but always by an accept: that alone ends ours.
            let change = apply(&op.request, current);
            if self.mutations.has(Mutation::MismatchLeavesWish)
                && let Change::Keep(outcome) = change
            {
                return self.finish(&op, outcome, out);
            }
            let proven = config.is_chosen(seen.ballot, seen.holders, self.mutations);
            self.carry_out(now, op, (config, proven), current, change, out);
        } else if let Some(version) = self.chosen_before(&op, config) {
            self.finish(&op, written(version), out);
        } else {
            op.own.overtaken_ms.get_or_insert(now.elapsed_ms);
            if Self::silent(&op, config).is_empty() {
                self.finish(&op, Outcome::Overtaken, out);
            } else {
                self.put_back(op);
            }
        }
    }

    /// Whether those who never stored our versions leave no write quorum.
    fn was_never_chosen(&self, never: Votes, config: &Config) -> bool {
        let others = config.acceptors().without(never);
        let suffices = !config.may_accept(others, self.mutations)
            || self.mutations.has(Mutation::OneDenialIsEnough);
        suffices && !never.is_empty()
    }

    /// Which of our versions was chosen, if so many remember that they accepted it.
    fn chosen_before(&self, op: &RegisterOp, config: &Config) -> Option<Ballot> {
        let by = |mine: &Ballot| op.own.tally.remembering(Recall::Accepted(*mine));
        let is_chosen = |mine: &&Ballot| {
            let by = by(mine);
            config.may_accept(by, self.mutations)
                || self.mutations.has(Mutation::OneMemoryIsEnough) && !by.is_empty()
        };
        op.own.mine.iter().find(is_chosen).copied()
    }

    /// Who was asked what became of our write, has not answered, and may know.
    fn silent(op: &RegisterOp, config: &Config) -> Votes {
        if op.own.doubted(config.epoch).is_none() {
            return Votes::NONE;
        }
        let asked = config.readers().without(op.own.silent);
        asked.without(op.own.tally.answered)
    }

    /// A round is over in which a write above ours was seen, and not what became of ours. Those
    /// that stall or restart are soon back, and then it often shows; but who waits in line
    /// behind ours cannot wait for long.
    pub(super) fn ends_in_doubt(&self, now: Now, op: &RegisterOp) -> bool {
        let since = op.own.overtaken_ms;
        since.is_some_and(|since| now.elapsed_ms >= since + self.options.doubt_ms)
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
            outcome: written(seen.version),
            requested: true,
            again: false,
            next: None,
            warm: false,
        };
        self.accept(now, op, config, plan, out);
    }
}

const fn written(version: Ballot) -> Outcome {
    Outcome::Written {
        existed: true,
        version,
        fast: false,
    }
}

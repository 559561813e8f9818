//! R7: determines the outcome of a write whose sent accept did not succeed.

use std::sync::Arc;

use torc_record::Ballot;

use super::request::{Change, Current, apply};
use super::{Coordinator, Intent, Outcome, Plan, RegisterOp};
use crate::{Config, Held, Mutation, Now, Votes};

impl Coordinator {
    /// Versions decide, not ballots: a reconciliation meanwhile accepts the present version
    /// again, possibly ours, under a new ballot but with the same version.
    ///
    /// Chosen versions never decrease: accepting again keeps the version, a write raises it. A
    /// read quorum has promised a higher ballot than all of ours. So if its highest version is
    /// below all of ours, ours was never chosen and never can be: retry. If it is above, ours may
    /// have been chosen, seen and overwritten; then replicas' memories decide. If so many never
    /// stored ours that no write quorum is left, ours was never chosen, and the promises of this
    /// round keep it from being chosen. If a write quorum stored it under one ballot, ours or that of
    /// a coordinator that had it accepted again, it was chosen. Otherwise the outcome is unknown.
    pub(super) fn resolve(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        (config, proven): (&Arc<Config>, bool),
        seen: &Held,
        current: &Current,
        out: &mut Vec<Intent>,
    ) {
        let version = seen.version();
        op.own.overtaken_by = None;
        if op.own.mine.contains(&version) {
            self.carry_forward(now, op, config, seen, out);
        } else if op.own.mine.iter().all(|mine| version < *mine)
            || self.was_never_chosen(op.own.tally.never_stored(), config)
        {
            // As in a first attempt, but always with an accept, because only that ends our earlier
            // one.
            let change = apply(&op.request, current, self.mutations);
            if self.mutations.has(Mutation::MismatchLeavesWish)
                && let Change::Keep(outcome) = change
            {
                return self.finish(&op, outcome, out);
            }
            self.carry_out(now, op, (config, proven), current, change, out);
        } else if let Some(version) = self.chosen_before(&op, config) {
            self.finish(&op, written(&op, version), out);
        } else {
            op.own.overtaken_by = Some(version);
            if may_tell_later(&op, config).is_empty() {
                self.finish(&op, Outcome::Overtaken, out);
            } else {
                self.put_back(op);
            }
        }
    }

    /// Whether the replicas that never stored our versions leave no write quorum.
    fn was_never_chosen(&self, never: Votes, config: &Config) -> bool {
        let others = config.acceptors().without(never);
        let suffices = !config.may_accept(others, self.mutations)
            || self.mutations.has(Mutation::OneDenialIsEnough);
        suffices && !never.is_empty()
    }

    /// Our version that was chosen, if a write quorum remembers storing it under one ballot.
    fn chosen_before(&self, op: &RegisterOp, config: &Config) -> Option<Ballot> {
        let is_chosen = |by: Votes| {
            config.may_accept(by, self.mutations)
                || self.mutations.has(Mutation::OneMemoryIsEnough) && !by.is_empty()
        };
        let tally = &op.own.tally;
        let mut mine = op.own.mine.iter().copied();
        mine.find(|version| {
            let mut ballots = tally.ballots_of(*version);
            ballots.any(|ballot| is_chosen(tally.storing(*version, ballot)))
        })
    }

    fn carry_forward(
        &mut self,
        now: Now,
        op: Box<RegisterOp>,
        config: &Arc<Config>,
        seen: &Held,
        out: &mut Vec<Intent>,
    ) {
        let Some(state) = seen.content.to_state() else {
            return self.finish(&op, Outcome::Unknown, out);
        };
        let plan = Plan {
            state,
            version: seen.version(),
            outcome: written(&op, seen.version()),
            requested: true,
            again: false,
            next: None,
            warm: false,
        };
        self.accept(now, op, config, plan, out);
    }
}

/// Replicas that may know the outcome of a write and have not told it. A node that stalls or restarts
/// is soon back and often tells it, so the write waits for it.
fn may_tell_later(op: &RegisterOp, config: &Config) -> Votes {
    if op.own.doubted(config.epoch).is_none() {
        return Votes::NONE;
    }
    let asked = config.readers().without(op.own.silent);
    asked.without(op.own.tally.answered)
}

fn written(op: &RegisterOp, version: Ballot) -> Outcome {
    Outcome::Written {
        existed: !op.own.found_nothing.contains(&version),
        version,
        fast: false,
    }
}

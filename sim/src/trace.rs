//! The trace of a run: a hash of all events, and optionally a text.

use torc_replication::{Message, OpId, Outcome};

use crate::event::Event;

/// The record of a run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Records only the hash.
    #[must_use]
    pub fn hashing() -> Self {
        Self::default()
    }

    /// Also records the text.
    #[must_use]
    pub const fn writing() -> Self {
        Self {
            hash: 0,
            lines: Some(Vec::new()),
        }
    }

    /// Equal for two runs exactly if they did the same, except with probability 2^-64.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The text, one event per line; empty unless it was requested.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    pub(crate) const fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    pub(crate) fn note(&mut self, us: u64, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3} ms  {}", us as f64 / 1_000.0, text()));
        }
    }

    pub(crate) fn outcome(&mut self, us: u64, op: OpId, outcome: &Outcome) {
        let word = match outcome {
            Outcome::Found { version, .. } | Outcome::Written { version, .. } => version.time.0,
            Outcome::Absent { .. } => 1,
            Outcome::Mismatch { .. } => 2,
            Outcome::Reconciled | Outcome::Refused => 3,
            Outcome::Unavailable => 4,
            Outcome::Unknown => 5,
            Outcome::OutOfSpace => 6,
            Outcome::Overtaken => 7,
        };
        self.mix(word ^ op.0);
        self.note(us, || format!("op {} is answered: {outcome:?}", op.0));
    }

    pub(crate) fn event(&mut self, us: u64, event: &Event) {
        if self.lines.is_none() {
            return;
        }
        match event {
            Event::Deliver { from, to, envelope } => {
                let text = describe(&envelope.message);
                self.note(us, || {
                    format!("{from} -> {to} in epoch {}: {text}", envelope.epoch)
                });
            }
            Event::Topology { node, config } => self.note(us, || {
                let members: Vec<_> = config.members.iter().map(|m| m.node.0).collect();
                format!(
                    "node {} hears of epoch {}: {:?} of {members:?}, old {:?}, new {:?}, excluded {:?}",
                    node + 1,
                    config.epoch,
                    config.stage,
                    config.old,
                    config.new,
                    config.excluded
                )
            }),
            Event::Report { from, milestone } => {
                self.note(us, || format!("{from} reports {milestone:?}"));
            }
            Event::Alone { node, alone, .. } => {
                self.note(us, || format!("node {} alone: {alone:?}", node + 1));
            }
            Event::Cancel { node, op } => {
                self.note(us, || format!("op {} at node {} is given up", op.0, node + 1));
            }
            Event::Start { node } => self.note(us, || format!("node {} starts", node + 1)),
            Event::Slices {
                node,
                from,
                epoch,
                slices,
                ..
            } => self.note(us, || {
                let what = slices.as_ref().map(|(records, through)| {
                    let ballots = records.iter().map(|record| record.ballot.to_string());
                    (ballots.collect::<Vec<_>>(), through.0)
                });
                format!(
                    "{from}'s slices reach node {} in epoch {epoch}: {what:?}",
                    node + 1
                )
            }),
            Event::Take { node } => {
                self.note(us, || format!("node {} takes the new namespace", node + 1));
            }
            Event::Know { node } => {
                self.note(us, || format!("node {} knows the new namespace", node + 1));
            }
            Event::Synced { .. }
            | Event::Wake { .. }
            | Event::Beat { .. }
            | Event::Discard { .. }
            | Event::Read { .. }
            | Event::ScanLate { .. }
            | Event::Client(_)
            | Event::Group
            | Event::Chaos => {}
        }
    }
}

fn describe(message: &Message) -> String {
    let text = match message {
        Message::Accept { record, next, tag } => format!(
            "accept {} of op {} = {:?}, next {}",
            record.ballot,
            tag.op.0,
            record.state,
            next.map_or_else(|| "none".to_owned(), |ballot| ballot.to_string())
        ),
        Message::Learn { record } => format!("learn {} = {:?}", record.ballot, record.state),
        Message::Prepare { ballot, tag, .. } => format!("prepare {ballot} of op {}", tag.op.0),
        Message::Promised { held, tag, recall } => format!(
            "promised to op {}, holds {} {:?}, {recall:?}",
            tag.op.0, held.ballot, held.content
        ),
        Message::Holding { held, tag } => format!(
            "to op {}: holds {} {:?}, collected {}, closed to {}",
            tag.op.0, held.ballot, held.content, held.collected, held.collecting
        ),
        Message::Nack { highest, tag } => format!("refuses op {}, has {highest}", tag.op.0),
        Message::Read { tag, closes, .. } => format!("read of op {}, closes {closes}", tag.op.0),
        Message::Accepted { tag } => format!("accepted for op {}", tag.op.0),
        other => format!("{other:?}"),
    };
    text.chars().take(220).collect()
}

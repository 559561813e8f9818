//! Groups requests that arrived together by key.
//!
//! Each key of a burst becomes one operation, however many commands it has. They apply one after
//! another to the value read, or to the value that the first of them writes. So commands on one key
//! keep their order, commands on different keys run concurrently, and answers leave in the order of
//! the requests.

use std::collections::HashMap;

use bytes::Bytes;
use torc_resp::{Join, KeyOp, Reply, Version};

use super::errors;
use crate::Answers;

/// A burst runs once it has this many operations on keys,
pub(super) const MOST_OPS: usize = 256;
/// or this many requests of any kind.
const MOST_REQUESTS: usize = 1_024;

/// A key of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) database: u32,
    pub(super) key: Bytes,
}

/// Commands on one key, in order.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) place: Place,
    pub(super) ops: Vec<KeyOp>,
}

/// Identifies the answer of an operation: the index of its group, and its index there.
type At = (usize, usize);

/// Kind of a command on several keys.
#[derive(Debug, Clone, Copy)]
struct Kind {
    join: Join,
    is_read: bool,
}

#[derive(Debug)]
enum Answer {
    Ready(Reply),
    One(At),
    Several(Vec<At>, Kind),
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Slot {
    /// Index of its command in the table.
    command: Option<usize>,
    version: Version,
    answer: Answer,
}

/// A reply, and the protocol version to encode it in.
pub(super) struct Due {
    pub(super) command: Option<usize>,
    pub(super) version: Version,
    pub(super) reply: Reply,
}

/// Requests under way.
#[derive(Debug, Default)]
pub(super) struct Burst {
    slots: Vec<Slot>,
    /// The operations of each group.
    groups: Vec<Vec<KeyOp>>,
    /// From a key to the index of its group.
    index: HashMap<Place, usize>,
    ops: usize,
}

impl Burst {
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ops >= MOST_OPS || self.slots.len() >= MOST_REQUESTS
    }

    /// Adds a request that already has its reply.
    pub(super) fn ready(&mut self, command: Option<usize>, version: Version, reply: Reply) {
        self.slots.push(Slot {
            command,
            version,
            answer: Answer::Ready(reply),
        });
    }

    /// Adds a command on one key.
    pub(super) fn one(&mut self, command: usize, version: Version, place: Place, op: KeyOp) {
        let answer = Answer::One(self.put(place, op));
        self.slots.push(Slot {
            command: Some(command),
            version,
            answer,
        });
    }

    /// Adds a command on several keys of a database.
    pub(super) fn several(
        &mut self,
        command: usize,
        version: Version,
        database: u32,
        (ops, join): (Vec<(Bytes, KeyOp)>, Join),
    ) {
        let is_read = ops.iter().all(|(_, op)| op.is_read());
        let kind = Kind { join, is_read };
        let put = |(key, op)| self.put(Place { database, key }, op);
        let places = ops.into_iter().map(put).collect();
        self.slots.push(Slot {
            command: Some(command),
            version,
            answer: Answer::Several(places, kind),
        });
    }

    fn put(&mut self, place: Place, op: KeyOp) -> At {
        self.ops += 1;
        let next = self.groups.len();
        let number = *self.index.entry(place).or_insert(next);
        if number == next {
            self.groups.push(vec![op]);
            return (next, 0);
        }
        let ops = &mut self.groups[number];
        ops.push(op);
        (number, ops.len() - 1)
    }

    /// Takes the groups to run.
    pub(super) fn take_groups(&mut self) -> Vec<Group> {
        self.ops = 0;
        let groups = std::mem::take(&mut self.groups).into_iter();
        let mut groups: Vec<_> = groups
            .map(|ops| Group {
                place: Place::default(),
                ops,
            })
            .collect();
        for (place, number) in self.index.drain() {
            groups[number].place = place;
        }
        groups
    }

    /// The replies in the order of the requests, from the answers of the groups.
    pub(super) fn replies(&mut self, answers: Vec<Answers>) -> impl Iterator<Item = Due> {
        let mut answers: Vec<_> = answers.into_iter().map(Told::of).collect();
        self.slots.drain(..).map(move |slot| {
            let reply = match slot.answer {
                Answer::Ready(reply) => reply,
                Answer::One(at) => take(&mut answers, at),
                Answer::Several(places, kind) => {
                    let replies = places.into_iter().map(|at| take(&mut answers, at));
                    joined(replies.collect(), kind)
                }
            };
            Due {
                command: slot.command,
                version: slot.version,
                reply,
            }
        })
    }
}

/// The answers of a group; each is taken once.
enum Told {
    Replies(Vec<Reply>),
    Fault(String),
}

impl Told {
    fn of(answers: Answers) -> Self {
        match answers {
            Ok(replies) => Self::Replies(replies),
            Err(fault) => Self::Fault(errors::text(&fault)),
        }
    }
}

fn take(answers: &mut [Told], (group, place): At) -> Reply {
    match &mut answers[group] {
        Told::Replies(replies) => std::mem::replace(&mut replies[place], Reply::Null),
        Told::Fault(text) => Reply::Error(text.clone()),
    }
}

/// Combines several answers into one. If any failed, reports the worst failure for the whole
/// command.
fn joined(replies: Vec<Reply>, kind: Kind) -> Reply {
    let errors = replies.iter().filter_map(|reply| match reply {
        Reply::Error(text) => Some(text),
        _ => None,
    });
    let all_failed = errors.clone().count() == replies.len();
    let worst = errors.max_by_key(|text| text.starts_with("OUTCOMEUNKNOWN "));
    match worst {
        None => kind.join.join(replies),
        Some(text) if kind.is_read || all_failed || text.starts_with("OUTCOMEUNKNOWN ") => {
            Reply::Error(text.clone())
        }
        Some(text) => Reply::Error(format!(
            "OUTCOMEUNKNOWN some keys were written and some were not: {text}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_proto::{Fault, Reason};

    fn place(key: &'static str) -> Place {
        Place {
            database: 0,
            key: key.into(),
        }
    }

    #[test]
    fn commands_on_one_key_are_one_group_and_answers_keep_their_order() {
        let mut burst = Burst::default();
        burst.one(0, Version::Resp2, place("a"), KeyOp::Get);
        burst.one(0, Version::Resp3, place("b"), KeyOp::Get);
        burst.ready(None, Version::Resp2, Reply::OK);
        let ops = vec![("b".into(), KeyOp::Exists), ("a".into(), KeyOp::Exists)];
        burst.several(0, Version::Resp2, 0, (ops, Join::List));
        let other = Place {
            database: 1,
            key: "a".into(),
        };
        burst.one(0, Version::Resp2, other, KeyOp::Strlen);
        let groups = burst.take_groups();
        let ops: Vec<_> = groups.iter().map(|group| group.ops.len()).collect();
        assert_eq!(ops, [2, 2, 1]);
        let number = |number| Reply::Integer(number);
        let answers = vec![
            Ok(vec![number(1), number(2)]),
            Ok(vec![number(3), number(4)]),
            Err(Fault::new(Reason::Overloaded, "later")),
        ];
        let replies: Vec<_> = burst.replies(answers).map(|due| due.reply).collect();
        let list = Reply::Array(vec![number(4), number(2)]);
        let late = Reply::Error("OVERLOADED later".into());
        assert_eq!(replies, [number(1), number(3), Reply::OK, list, late]);
        assert!(burst.is_empty());
    }

    #[test]
    fn of_several_keys_the_worst_is_told() {
        let failed = |kind: &str| Reply::Error(format!("{kind} why"));
        let kind = |is_read| Kind {
            join: Join::Done,
            is_read,
        };
        let told = |replies, is_read| match joined(replies, kind(is_read)) {
            Reply::Error(text) => text,
            other => panic!("{other:?}"),
        };
        let (none, unknown) = (failed("UNAVAILABLE"), failed("OUTCOMEUNKNOWN"));
        let all = vec![Reply::OK, none.clone(), unknown.clone()];
        assert_eq!(told(all, false), "OUTCOMEUNKNOWN why");
        let written = told(vec![Reply::OK, none.clone()], false);
        assert!(written.starts_with("OUTCOMEUNKNOWN some keys"), "{written}");
        let none_written = told(vec![none.clone(), none.clone()], false);
        assert_eq!(none_written, "UNAVAILABLE why");
        assert_eq!(told(vec![Reply::Null, none], true), "UNAVAILABLE why");
    }
}

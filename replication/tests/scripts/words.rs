//! The language of the scripts: how keys, ballots and messages are written and parsed.

use std::error::Error;
use std::fmt::Write as _;

use bytes::Bytes;
use goldenscript::ArgumentConsumer;
use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, NamespaceId, NodeSlot, Record, State,
};
use torc_replication::{
    Config, Content, Entry, Held, Locator, Message, Milestone, Outcome, Recall, Tag,
};
use torc_ring::NodeId;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// `n1`
pub(crate) fn node(text: &str) -> Result<NodeId> {
    let number = text
        .strip_prefix('n')
        .and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| format!("`{text}` is no node: write n1"))?;
    Ok(NodeId(number))
}

/// `n1/n2/n3`
pub(crate) fn nodes(text: &str) -> Result<Vec<NodeId>> {
    let names = text.split('/').filter(|name| !name.is_empty());
    names.map(node).collect()
}

/// `k`; `l@k` is a key with the digest of `k`.
pub(crate) fn locator(name: &str) -> Result<Locator> {
    let namespace = NamespaceId::DEFAULT;
    let hashed = name.rsplit('@').next().unwrap_or(name);
    Ok(Locator {
        namespace,
        digest: Digest::of(&DigestKey([0; 32]), namespace, hashed.as_bytes()),
        key: Key::new(name.as_bytes().to_vec())?,
    })
}

/// `1.100.n3`: epoch 1, 100 ms, node 3. `1.100.2.n3` is a later reading of that millisecond.
pub(crate) fn ballot(text: &str) -> Result<Ballot> {
    let parse = || {
        let (time, slot) = text.rsplit_once(".n")?;
        let mut parts = time.split('.').map(str::parse);
        let epoch = Epoch(parts.next()?.ok()?);
        let ms = HybridTime::from_unix_ms(parts.next()?.ok()?);
        let count = parts.next().unwrap_or(Ok(0)).ok()?;
        Some(Ballot {
            epoch,
            time: HybridTime(ms.0 + count),
            slot: NodeSlot(slot.parse().ok()?),
        })
    };
    parse().ok_or_else(|| format!("`{text}` is no ballot: write 1.100.n1").into())
}

/// In the form that [`ballot`] parses, after an `@`.
pub(crate) fn say_ballot(ballot: Ballot) -> String {
    let Ballot { epoch, time, slot } = ballot;
    let ms = time.unix_ms();
    let count = match time.0 - HybridTime::from_unix_ms(ms).0 {
        0 => String::new(),
        count => format!(".{count}"),
    };
    match slot.0 {
        // A floor at a ceiling: above every ballot with its time.
        u16::MAX => format!("@{epoch}.{ms}{count}.max"),
        slot => format!("@{epoch}.{ms}{count}.n{slot}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn say_state(key: &str, state: &State) -> String {
    match state {
        State::Tombstone => format!("{key} deleted"),
        State::Value {
            value,
            expires_at_ms,
        } => {
            let until = expires_at_ms.map_or(String::new(), |at| format!(" until {at}"));
            format!("{key}={}{until}", text(value))
        }
    }
}

pub(crate) fn say_record(record: &Record) -> String {
    let what = say_state(&text(record.key.as_bytes()), &record.state);
    let origin = record.origin.map_or(String::new(), |origin| {
        format!(" (version {})", say_ballot(origin))
    });
    format!("{what} {}{origin}", say_ballot(record.ballot))
}

pub(crate) fn say_entry(entry: &Entry) -> String {
    match entry {
        Entry::Found(record) => say_record(record),
        Entry::Unreadable(at) => format!("{} unreadable", say_key(at)),
    }
}

pub(crate) fn say_key(at: &Locator) -> String {
    text(at.key.as_bytes())
}

fn say_held(held: &Held) -> String {
    let mut said = match &held.content {
        Content::Absent => "nothing".to_owned(),
        Content::Tombstone => "a tombstone".to_owned(),
        Content::Value { value: None, .. } => "a value".to_owned(),
        Content::Value {
            value: Some(value), ..
        } => text(value),
    };
    if held.ballot != Ballot::default() {
        said = format!("{said} {}", say_ballot(held.ballot));
    }
    if let Some(origin) = held.origin {
        said = format!("{said} (version {})", say_ballot(origin));
    }
    said + &say_watermarks(held.collected, held.collecting)
}

/// The watermarks that are not zero; a started collection only if it is not complete.
pub(crate) fn say_watermarks(collected: Ballot, collecting: Ballot) -> String {
    let mut said = String::new();
    for (word, ballot) in [("collected", collected), ("collecting", collecting)] {
        let is_done = word == "collecting" && ballot == collected;
        if ballot != Ballot::default() && !is_done {
            let _ = write!(said, ", {word} {}", say_ballot(ballot));
        }
    }
    said
}

fn say_recall(recall: Recall) -> String {
    match recall {
        Recall::Unsure => String::new(),
        Recall::Never => ", never stored what is doubted".to_owned(),
        Recall::Stored {
            version,
            is_accepted,
            last,
        } => {
            let once = format!(", once accepted {}", say_ballot(version));
            match (is_accepted, last == version) {
                (_, true) => once,
                (true, false) => format!("{once}, and again as {}", say_ballot(last)),
                (false, false) => format!("{once} as {}", say_ballot(last)),
            }
        }
    }
}

fn say_optional(word: &str, ballot: Option<Ballot>) -> String {
    ballot.map_or(String::new(), |it| format!(", {word} {}", say_ballot(it)))
}

/// The first word is the kind, by which scripts select messages.
pub(crate) fn say(message: &Message) -> String {
    match message {
        Message::Read {
            at,
            want_value,
            closes,
            ..
        } => {
            let closes = Some(*closes).filter(|it| *it != Ballot::default());
            let what = if *want_value {
                "value of"
            } else {
                "version of"
            };
            format!(
                "read {what} {}{}",
                say_key(at),
                say_optional("closes", closes)
            )
        }
        Message::Holding { held, .. } => format!("holds {}", say_held(held)),
        Message::Prepare {
            at,
            ballot,
            doubted,
            ..
        } => {
            let doubted = say_optional("doubts from", *doubted);
            format!("prepare {} {}{doubted}", say_key(at), say_ballot(*ballot))
        }
        Message::Promised { held, recall, .. } => {
            format!("promises, holds {}{}", say_held(held), say_recall(*recall))
        }
        Message::Accept { record, next, .. } => {
            format!(
                "accept {}{}",
                say_record(record),
                say_optional("next", *next)
            )
        }
        Message::Accepted { .. } => "accepted".to_owned(),
        Message::Nack { highest, .. } => format!("refuses, highest {}", say_ballot(*highest)),
        Message::Abstain { .. } => "abstains".to_owned(),
        Message::Learn { record } => format!("learn {}", say_record(record)),
        Message::Store { record, .. } => format!("store {}", say_record(record)),
        Message::Repair { record, .. } => format!("repair {}", say_record(record)),
        Message::Epoch { .. } => "refuses, is in another epoch".to_owned(),
        other => say_background(other),
    }
}

fn say_background(message: &Message) -> String {
    match message {
        Message::Pull { after, since, .. } => {
            let after = after.map_or("first page", |_| "next page");
            let since = since.map_or(String::new(), |it| format!(" of the log after {}", it.0));
            format!("pull {after}{since}")
        }
        Message::Page {
            records,
            next,
            collected,
            collecting,
            ..
        } => {
            let said: Vec<_> = records.iter().map(say_record).collect();
            let said = if said.is_empty() {
                "nothing".to_owned()
            } else {
                said.join(", ")
            };
            let end = if next.is_some() {
                "more follows"
            } else {
                "the end"
            };
            let watermarks = say_watermarks(*collected, *collecting);
            format!("page {said}; {end}{watermarks}")
        }
        Message::GcFloor { upto } => format!("floor {}", say_ballot(*upto)),
        Message::GcSum {
            upto,
            sum,
            collected,
        } => {
            let collected = Some(*collected).filter(|it| *it != Ballot::default());
            let collected = say_optional("collected", collected);
            format!(
                "sum {:04x} at or below {}{collected}",
                sum & 0xffff,
                say_ballot(*upto)
            )
        }
        Message::GcPurge { upto } => format!("purge {}", say_ballot(*upto)),
        Message::Compare { sums, .. } => {
            let sums: Vec<_> = sums
                .iter()
                .map(|it| format!("{:04x}", it.sum & 0xffff))
                .collect();
            format!("compare {}", sums.join(" "))
        }
        Message::List { listing } => {
            let said = listing.entries.iter().map(|(at, ballot)| {
                let ballot = ballot.map_or("unreadable".to_owned(), say_ballot);
                format!("{} {ballot}", say_key(at))
            });
            format!("list {}", said.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn rounds(fast: bool) -> &'static str {
    if fast {
        "in one round"
    } else {
        "in more rounds"
    }
}

pub(crate) fn say_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Found {
            value,
            version,
            fast,
            ..
        } => format!(
            "{} {}, {}",
            text(value),
            say_ballot(*version),
            rounds(*fast)
        ),
        Outcome::Absent { fast } => format!("absent, {}", rounds(*fast)),
        Outcome::Written { version, fast, .. } => {
            format!("written {}, {}", say_ballot(*version), rounds(*fast))
        }
        Outcome::Mismatch { current } => match current {
            Some((value, version)) => {
                format!("mismatch, it is {} {}", text(value), say_ballot(*version))
            }
            None => "mismatch, it is absent".to_owned(),
        },
        Outcome::Reconciled => "reconciled".to_owned(),
        Outcome::Refused => "refused".to_owned(),
        Outcome::Unavailable => "unavailable, nothing was changed".to_owned(),
        Outcome::OutOfSpace => "out of space".to_owned(),
        Outcome::Unknown => "unknown".to_owned(),
        Outcome::Overtaken => "unknown, it was overtaken".to_owned(),
    }
}

pub(crate) fn say_milestone(milestone: Milestone) -> String {
    match milestone {
        Milestone::Adopted(epoch) => format!("has adopted epoch {epoch}"),
        Milestone::Copied(epoch) => format!("has copied the bulk in epoch {epoch}"),
        Milestone::Snapshotted(epoch) => format!("has its snapshot in epoch {epoch}"),
    }
}

pub(crate) fn say_config(config: &Config) -> String {
    let names = |votes| {
        let names = config.nodes(votes).map(|node| format!("n{node}"));
        names.collect::<Vec<_>>().join(" ")
    };
    let mut said = format!("epoch {}: {:?}", config.epoch, config.stage);
    if config.returning {
        said += ", returning";
    }
    said = format!("{said}, replicas {}", names(config.old));
    if !config.new.is_empty() {
        said = format!("{said} -> {}", names(config.new));
    }
    if !config.excluded.is_empty() {
        said = format!("{said}, without {}", names(config.excluded));
    }
    said
}

/// A record as `k=v 1.100.n1`, with `until=` and `version=`; a key without a value is a tombstone.
fn record(args: &mut ArgumentConsumer<'_>) -> Result<Record> {
    let until = args.take_key("until").map(str::parse).transpose()?;
    let origin = args.take_key("version").map(ballot).transpose()?;
    let (at, state) = match args.next_key() {
        Some((key, value)) => {
            let value = State::Value {
                value: Bytes::from(value.to_owned()),
                expires_at_ms: until,
            };
            (locator(key)?, value)
        }
        None => (
            locator(args.next_pos().ok_or("which key?")?)?,
            State::Tombstone,
        ),
    };
    Ok(Record {
        namespace: at.namespace,
        digest: at.digest,
        key: at.key,
        ballot: ballot(args.next_pos().ok_or("which ballot?")?)?,
        origin,
        state,
    })
}

/// A message as a script writes it.
pub(crate) fn message(args: &mut ArgumentConsumer<'_>) -> Result<Message> {
    let tag = Tag::default();
    let take = |args: &mut ArgumentConsumer<'_>, name| args.take_key(name).map(ballot).transpose();
    let kind = args.next_pos().ok_or("which message?")?;
    let key = |args: &mut ArgumentConsumer<'_>| locator(args.next_pos().ok_or("which key?")?);
    let at = |args: &mut ArgumentConsumer<'_>| ballot(args.next_pos().ok_or("which ballot?")?);
    Ok(match kind {
        "read" => Message::Read {
            tag,
            closes: take(args, "closes")?.unwrap_or_default(),
            at: key(args)?,
            want_value: true,
        },
        "prepare" => Message::Prepare {
            tag,
            doubted: take(args, "doubts")?,
            at: key(args)?,
            ballot: at(args)?,
        },
        "accept" => Message::Accept {
            tag,
            next: take(args, "next")?,
            record: record(args)?,
        },
        "learn" => Message::Learn {
            record: record(args)?,
        },
        "store" => Message::Store {
            tag,
            record: record(args)?,
        },
        "repair" => Message::Repair {
            collected: take(args, "collected")?.unwrap_or_default(),
            closed: take(args, "closed")?.unwrap_or_default(),
            record: record(args)?,
        },
        "floor" => Message::GcFloor { upto: at(args)? },
        "purge" => Message::GcPurge { upto: at(args)? },
        other => return Err(format!("`{other}` is no message that a script sends").into()),
    })
}

//! The position of a scan, and the answers that it accepts. Pure.
//!
//! Invariants:
//! * Positions only grow, and entries lie between the positions before and after
//!   their message. So a scan that resumes from its last position, at any node, repeats
//!   and skips no record.
//! * An answer that violates this is malformed and rejected.

use bytes::Bytes;
use torc_proto::v1;
use torc_record::NamespaceId;
use torc_ring::Token;

use super::cursor::ScanCursor;
use crate::{Error, ScanOptions};

/// A scan's position and remaining limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Walk {
    at: ScanCursor,
    /// Records still wanted; `None`: all.
    left: Option<u64>,
    keys_only: bool,
    contains: Vec<Bytes>,
    /// Whether it has given records or moved on.
    goes_on: bool,
    ended: bool,
}

impl Walk {
    pub(super) fn new(options: ScanOptions) -> Self {
        Self {
            at: options.after.unwrap_or_default(),
            left: options.limit,
            keys_only: options.keys_only,
            contains: options.contains,
            goes_on: false,
            ended: options.limit == Some(0),
        }
    }

    /// Whether the end of the ring or the limit has been reached.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether it has given records or moved on.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The position.
    pub(super) fn position(&self) -> &ScanCursor {
        &self.at
    }

    /// The token at which to continue.
    pub(super) fn token(&self) -> Token {
        self.at.token()
    }

    /// The request to a node: for its own records only, or (not `local`) for those of all nodes.
    pub(super) fn request(
        &self,
        (namespace, id): (String, NamespaceId),
        local: bool,
    ) -> v1::ScanRequest {
        v1::ScanRequest {
            namespace,
            generation: if id.is_generation() { id.0 } else { 0 },
            after: self.at.to_wire(),
            limit: self.left.unwrap_or(0),
            local,
            keys_only: self.keys_only,
            contains: self.contains.clone(),
            goes_on: self.goes_on,
        }
    }

    /// Processes an answer of `entries` records. Returns whether the scan advanced.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) for an answer that would
    /// repeat records or exceed the limit.
    pub(super) fn advance(
        &mut self,
        entries: u64,
        cursor: &[u8],
        done: bool,
    ) -> Result<bool, Error> {
        let malformed = |what| Error::malformed(what, false);
        if self.left.is_some_and(|left| entries > left) {
            return Err(malformed("a scan gave more records than asked for"));
        }
        let moved = self.go_to(entries > 0, cursor)?;
        self.left = self.left.map(|left| left - entries);
        self.ended = done || self.left == Some(0);
        self.goes_on |= moved;
        Ok(moved || self.ended)
    }

    /// `must`: there were records, so the position must be after them.
    fn go_to(&mut self, must: bool, cursor: &[u8]) -> Result<bool, Error> {
        let malformed = |what| Error::malformed(what, false);
        if cursor.is_empty() && !must {
            return Ok(false);
        }
        if cursor.is_empty() {
            return Err(malformed("a scan returned records without a position"));
        }
        let next = ScanCursor::from_bytes(cursor);
        let next = next.map_err(|_| malformed("a scan's position"))?;
        if next < self.at {
            return Err(malformed("a scan's position moved backwards"));
        }
        if must && next == self.at {
            return Err(malformed("a scan returned records without advancing"));
        }
        let moved = next != self.at;
        self.at = next;
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use torc_record::{Digest, Key};

    fn behind(token: u8) -> Vec<u8> {
        [&[token; 16][..], b"k"].concat()
    }

    fn arc_start(token: u8) -> Vec<u8> {
        vec![token; 8]
    }

    #[test]
    fn it_goes_on_where_the_last_answer_ended() {
        let mut walk = Walk::new(ScanOptions::default());
        assert_eq!(walk.token(), Token::MIN);
        assert!(!walk.goes_on());
        assert_eq!(walk.advance(2, &behind(3), false), Ok(true));
        assert_eq!(walk.token(), Token(0x0303_0303_0303_0303));
        let request = walk.request(("ns".into(), NamespaceId(1)), true);
        assert_eq!(
            (&request.after[..], request.goes_on),
            (&behind(3)[..], true)
        );
        assert_eq!(walk.advance(0, &arc_start(9), false), Ok(true));
        assert_eq!(walk.token(), Token(0x0909_0909_0909_0909));
        assert_eq!(walk.advance(0, b"", true), Ok(true));
        assert!(walk.has_ended());
    }

    #[test]
    fn a_limit_counts_down_and_ends_the_scan() {
        let options = ScanOptions {
            limit: Some(3),
            ..ScanOptions::default()
        };
        let mut walk = Walk::new(options);
        assert_eq!(walk.advance(2, &behind(1), false), Ok(true));
        assert_eq!(walk.request((String::new(), NamespaceId(1)), true).limit, 1);
        assert!(walk.clone().advance(2, &behind(2), false).is_err());
        assert_eq!(walk.advance(1, &behind(2), false), Ok(true));
        assert!(walk.has_ended());
    }

    #[test]
    fn a_limit_of_nothing_is_over_before_it_begins() {
        let options = ScanOptions {
            limit: Some(0),
            ..ScanOptions::default()
        };
        assert!(
            Walk::new(options).has_ended(),
            "on the wire 0 means no limit"
        );
    }

    #[test]
    fn answers_that_would_give_a_record_twice_are_malformed() {
        let mut walk = Walk::new(ScanOptions::default());
        assert_eq!(walk.advance(1, &behind(5), false), Ok(true));
        let before = walk.clone();
        for (entries, cursor) in [
            (1, behind(4)),
            (0, arc_start(5)),
            (1, behind(5)),
            (1, Vec::new()),
            (0, b"odd".to_vec()),
        ] {
            assert!(walk.advance(entries, &cursor, false).is_err(), "{cursor:?}");
            assert_eq!(walk, before);
        }
    }

    #[test]
    fn an_answer_that_says_nothing_new_is_no_progress() {
        let mut walk = Walk::new(ScanOptions::default());
        assert_eq!(walk.advance(0, b"", false), Ok(false));
        assert_eq!(walk.advance(0, &arc_start(5), false), Ok(true));
        assert_eq!(walk.advance(0, &arc_start(5), false), Ok(false));
    }

    /// A ring of records served by nodes whose arcs change between requests, streams
    /// that break anywhere, and pages of any length.
    #[derive(Debug, Clone)]
    struct Step {
        arc_end: u8,
        page: usize,
        messages: usize,
        breaks: bool,
    }

    /// Records, position and end.
    type Message = (Vec<ScanCursor>, Vec<u8>, bool);

    fn any_step() -> impl Strategy<Value = Step> {
        (any::<u8>(), 1..5_usize, 1..4_usize, any::<bool>()).prop_map(
            |(arc_end, page, messages, breaks)| Step {
                arc_end,
                page,
                messages,
                breaks,
            },
        )
    }

    /// What an honest node sends for a request: its records from the position on up
    /// to the end of its arc, then the start of the next.
    fn serve(records: &[ScanCursor], after: &[u8], step: &Step) -> Vec<Message> {
        let from = ScanCursor::from_bytes(after).unwrap();
        let start = from.as_bytes()[0];
        let end = step.arc_end.max(start);
        let wanted = |record: &&ScanCursor| **record > from && record.as_bytes()[0] <= end;
        let mine: Vec<_> = records.iter().filter(wanted).cloned().collect();
        let mut messages: Vec<_> = mine
            .chunks(step.page)
            .map(|page| {
                (
                    page.to_vec(),
                    page[page.len() - 1].as_bytes().to_vec(),
                    false,
                )
            })
            .collect();
        if end == u8::MAX {
            messages.push((Vec::new(), Vec::new(), true));
        } else {
            let mut next = vec![0; 8];
            next[0] = end + 1;
            messages.push((Vec::new(), next, false));
        }
        if step.breaks {
            messages.truncate(step.messages);
        }
        messages
    }

    proptest! {
        #[test]
        fn every_record_is_given_once_however_arcs_change_and_streams_break(
            mut tokens in proptest::collection::vec(any::<(u8, u8)>(), 0..60),
            steps in proptest::collection::vec(any_step(), 1..20),
        ) {
            tokens.sort_unstable();
            tokens.dedup();
            let record = |&(high, low): &(u8, u8)| {
                let mut digest = [0; 16];
                (digest[0], digest[9]) = (high, low);
                ScanCursor::behind(Digest(digest), Key::new(&b"k"[..]).unwrap())
            };
            let records: Vec<_> = tokens.iter().map(record).collect();
            let mut walk = Walk::new(ScanOptions::default());
            let mut given = Vec::new();
            let mut rounds = steps.iter().cycle();
            while !walk.has_ended() {
                let step = rounds.next().unwrap();
                let after = walk.request((String::new(), NamespaceId(1)), true).after;
                for (entries, cursor, done) in serve(&records, &after, step) {
                    let moved = walk.advance(entries.len() as u64, &cursor, done);
                    prop_assert_eq!(moved, Ok(true));
                    given.extend(entries);
                }
            }
            prop_assert_eq!(given, records);
        }
    }
}

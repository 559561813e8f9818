//! Operations of commands on one key.
//!
//! Operations on one key apply one after the other to a value in memory ([`KeyOp::apply`]); the
//! result is written once. So a burst of commands becomes one read, one write or one
//! compare-and-set.

use std::cmp::Ordering;

use bytes::{Bytes, BytesMut};

use crate::decimal;
use crate::error::CommandError;
use crate::number;
use crate::reply::Reply;

/// A key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The bytes.
    pub value: Bytes,
    /// When it expires, Unix milliseconds; `None`: never.
    pub expires_at_ms: Option<u64>,
}

/// The state of a key, before and after operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyState {
    /// `None`: no value.
    pub entry: Option<Entry>,
    /// Whether the result must be written.
    pub is_changed: bool,
    /// The time, Unix milliseconds.
    pub now_ms: u64,
    /// Limit of a value, bytes.
    pub longest: usize,
}

/// Seconds or milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Rounded to seconds.
    Seconds,
    /// Exact.
    Milliseconds,
}

/// When a value expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// As before.
    Keep,
    /// Milliseconds from now; in the past if negative.
    In(i64),
    /// At this time, Unix milliseconds.
    At(i64),
}

/// When `SET` applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetIf {
    /// Always.
    Always,
    /// `NX`: there is no value.
    Absent,
    /// `XX`: there is one.
    Present,
    /// `IFEQ`: this is the value.
    Equal(Bytes),
}

/// `SET` and its variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetOp {
    /// The new value.
    pub value: Bytes,
    /// When it expires.
    pub expiry: Expiry,
    /// When it is set.
    pub condition: SetIf,
    /// Whether the reply is the old value.
    pub tells_old: bool,
    /// `SETNX`: the reply is 1 or 0.
    pub tells_number: bool,
}

impl SetOp {
    /// A `SET` without options.
    #[must_use]
    pub const fn plain(value: Bytes) -> Self {
        Self {
            value,
            expiry: Expiry::Never,
            condition: SetIf::Always,
            tells_old: false,
            tells_number: false,
        }
    }
}

/// When `EXPIRE` applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExpiryIf {
    /// `NX`: false, the value must have no expiry; `XX`: true, it must have one.
    pub has_one: Option<bool>,
    /// `GT`: greater, the new expiry must be later; `LT`: less, it must be earlier.
    pub order: Option<Ordering>,
}

/// An operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOp {
    /// Returns the value.
    Get,
    /// Returns a part of it, ends included; negative positions count from the end.
    GetRange(i64, i64),
    /// Returns its length.
    Strlen,
    /// Whether there is a value: 1 or 0.
    Exists,
    /// Returns `string` or `none`.
    Type,
    /// Returns the time until it expires; -1: never, -2: there is no value.
    Ttl(Unit),
    /// Returns when it expires.
    ExpireTime(Unit),
    /// Stores a value.
    Set(SetOp),
    /// Returns the value and deletes it.
    GetDel,
    /// Returns the value and sets its expiry.
    GetEx(Expiry),
    /// Deletes it: 1, or 0 if there was none.
    Del,
    /// Adds to a whole number.
    IncrBy(i64),
    /// Adds to a number.
    IncrByFloat(Bytes),
    /// Appends bytes; returns the new length.
    Append(Bytes),
    /// Sets when it expires; returns 1, or 0 if nothing was done.
    Expire(Expiry, ExpiryIf),
    /// Removes its expiry; returns 1, or 0 if nothing was done.
    Persist,
}

impl KeyOp {
    /// Whether it leaves every key unchanged.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::GetRange(..)
                | Self::Strlen
                | Self::Exists
                | Self::Type
                | Self::Ttl(_)
                | Self::ExpireTime(_)
        )
    }

    /// Whether it writes a value, and neither the value nor the reply depends on the old one.
    #[must_use]
    pub fn is_blind(&self, longest: usize) -> bool {
        matches!(self, Self::Set(SetOp { value, expiry, condition: SetIf::Always, tells_old: false, .. })
            if *expiry != Expiry::Keep && value.len() <= longest)
    }

    /// Applies it; returns the reply.
    ///
    /// # Errors
    /// [`CommandError`]; the state is unchanged.
    pub fn apply(&self, state: &mut KeyState) -> Result<Reply, CommandError> {
        let value = state.entry.as_ref().map(|entry| entry.value.clone());
        Ok(match self {
            Self::Get => Reply::of(value),
            Self::GetRange(start, end) => Reply::Bulk(range(value, *start, *end)),
            Self::Strlen => Reply::len(value.map_or(0, |value| value.len())),
            Self::Exists => Reply::Integer(value.is_some().into()),
            Self::Type => Reply::Simple(if value.is_some() { "string" } else { "none" }),
            Self::Ttl(unit) => Reply::Integer(state.ttl(*unit)),
            Self::ExpireTime(unit) => Reply::Integer(state.expire_time(*unit)),
            Self::Set(set) => return state.set(set),
            Self::GetDel => {
                state.delete();
                Reply::of(value)
            }
            Self::GetEx(expiry) => {
                state.expire(*expiry);
                Reply::of(value)
            }
            Self::Del => Reply::Integer(state.delete().into()),
            Self::IncrBy(by) => return state.increment(*by),
            Self::IncrByFloat(by) => return state.increment_float(by),
            Self::Append(tail) => return state.append(tail),
            Self::Expire(expiry, when) => {
                let applies = state.may_expire(*expiry, *when);
                if applies {
                    state.expire(*expiry);
                }
                Reply::Integer(applies.into())
            }
            Self::Persist => {
                let entry = state.entry.as_ref();
                let applies = entry.is_some_and(|entry| entry.expires_at_ms.is_some());
                if applies {
                    state.expire(Expiry::Never);
                }
                Reply::Integer(applies.into())
            }
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "both lie within the value"
)]
fn range(value: Option<Bytes>, start: i64, end: i64) -> Bytes {
    let value = value.unwrap_or_default();
    let len = value.len() as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    // As in Redis: two negative positions in the wrong order give an empty range.
    if start < 0 && end < 0 && start > end {
        return Bytes::new();
    }
    let (start, end) = (from_end(start).max(0), from_end(end).max(0).min(len - 1));
    if start > end || len == 0 {
        return Bytes::new();
    }
    value.slice(start as usize..=end as usize)
}

impl KeyState {
    /// The state of a key as read.
    #[must_use]
    pub const fn new(entry: Option<Entry>, now_ms: u64, longest: usize) -> Self {
        Self {
            entry,
            is_changed: false,
            now_ms,
            longest,
        }
    }

    fn check_len(&self, len: usize) -> Result<(), CommandError> {
        let most = self.longest;
        if len > most {
            return Err(CommandError::TooLong { len, most });
        }
        Ok(())
    }

    /// The time of an expiry; `None` if it names no time.
    fn time_of(&self, expiry: Expiry) -> Option<i64> {
        match expiry {
            Expiry::Keep | Expiry::Never => None,
            Expiry::In(ms) => Some(ms.saturating_add_unsigned(self.now_ms)),
            Expiry::At(ms) => Some(ms),
        }
    }

    /// Sets the expiry of the present value; a time in the past deletes it.
    fn expire(&mut self, expiry: Expiry) {
        let time = self.time_of(expiry).map(u64::try_from);
        let Some(entry) = self.entry.as_mut().filter(|_| expiry != Expiry::Keep) else {
            return;
        };
        self.is_changed = true;
        match time {
            None => entry.expires_at_ms = None,
            Some(Ok(time)) if time > self.now_ms => entry.expires_at_ms = Some(time),
            Some(_) => self.entry = None,
        }
    }

    fn put(&mut self, value: Bytes, expiry: Expiry) {
        let before = self.entry.take();
        self.entry = Some(Entry {
            value,
            expires_at_ms: before.and_then(|before| before.expires_at_ms),
        });
        self.is_changed = true;
        self.expire(expiry);
    }

    fn delete(&mut self) -> bool {
        let existed = self.entry.take().is_some();
        self.is_changed |= existed;
        existed
    }

    fn set(&mut self, set: &SetOp) -> Result<Reply, CommandError> {
        self.check_len(set.value.len())?;
        let old = self.entry.as_ref().map(|entry| entry.value.clone());
        let applies = match &set.condition {
            SetIf::Always => true,
            SetIf::Absent => old.is_none(),
            SetIf::Present => old.is_some(),
            SetIf::Equal(wanted) => old.as_ref() == Some(wanted),
        };
        if applies {
            self.put(set.value.clone(), set.expiry);
        }
        Ok(match (set.tells_old, set.tells_number) {
            (true, _) => Reply::of(old),
            (false, true) => Reply::Integer(applies.into()),
            (false, false) if applies => Reply::OK,
            (false, false) => Reply::Null,
        })
    }

    fn increment(&mut self, by: i64) -> Result<Reply, CommandError> {
        let number = match &self.entry {
            Some(entry) => number::whole(&entry.value).ok_or(CommandError::NotInteger)?,
            None => 0,
        };
        let sum = number.checked_add(by).ok_or(CommandError::Overflow)?;
        self.put(sum.to_string().into(), Expiry::Keep);
        Ok(Reply::Integer(sum))
    }

    fn increment_float(&mut self, by: &[u8]) -> Result<Reply, CommandError> {
        let value = self.entry.as_ref().map_or(&b"0"[..], |entry| &entry.value);
        let sum = Bytes::from(decimal::add(value, by)?);
        self.check_len(sum.len())?;
        self.put(sum.clone(), Expiry::Keep);
        Ok(Reply::Bulk(sum))
    }

    fn append(&mut self, tail: &Bytes) -> Result<Reply, CommandError> {
        let value = self.entry.as_ref().map(|entry| &entry.value[..]);
        let value = value.unwrap_or_default();
        let len = value.len() + tail.len();
        self.check_len(len)?;
        let mut whole = BytesMut::with_capacity(len);
        whole.extend_from_slice(value);
        whole.extend_from_slice(tail);
        self.put(whole.freeze(), Expiry::Keep);
        Ok(Reply::len(len))
    }

    fn may_expire(&self, expiry: Expiry, when: ExpiryIf) -> bool {
        let Some(entry) = &self.entry else {
            return false;
        };
        let old = entry.expires_at_ms;
        if when.has_one.is_some_and(|wanted| wanted != old.is_some()) {
            return false;
        }
        // A value without an expiry counts as later than any other.
        let old = old.map_or(i64::MAX, |old| i64::try_from(old).unwrap_or(i64::MAX));
        let new = self.time_of(expiry).unwrap_or(i64::MAX);
        when.order.is_none_or(|wanted| new.cmp(&old) == wanted)
    }

    fn expire_time(&self, unit: Unit) -> i64 {
        match &self.entry {
            None => -2,
            Some(entry) => match entry.expires_at_ms {
                None => -1,
                Some(time) => unit.of(time),
            },
        }
    }

    fn ttl(&self, unit: Unit) -> i64 {
        let time = self.entry.as_ref().map(|entry| entry.expires_at_ms);
        match time {
            Some(Some(time)) => unit.of(time.saturating_sub(self.now_ms)),
            Some(None) => -1,
            None => -2,
        }
    }
}

impl Unit {
    fn of(self, ms: u64) -> i64 {
        let rounded = match self {
            Self::Seconds => ms.saturating_add(500) / 1_000,
            Self::Milliseconds => ms,
        };
        i64::try_from(rounded).unwrap_or(i64::MAX)
    }
}

/// Refuses a value that `INCRBYFLOAT` cannot add.
pub(crate) fn check_float(text: &[u8]) -> Result<(), CommandError> {
    decimal::check(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    fn state(value: Option<&str>, expires_at_ms: Option<u64>) -> KeyState {
        let entry = value.map(|value| Entry {
            value: Bytes::copy_from_slice(value.as_bytes()),
            expires_at_ms,
        });
        KeyState::new(entry, NOW, 100)
    }

    fn set(value: &'static str) -> SetOp {
        SetOp::plain(value.into())
    }

    #[test]
    fn set_has_its_conditions_and_tells_the_old_value_when_asked() {
        let cases: [(Option<&str>, SetIf, Reply, bool); 7] = [
            (None, SetIf::Absent, Reply::OK, true),
            (Some("a"), SetIf::Absent, Reply::Null, false),
            (None, SetIf::Present, Reply::Null, false),
            (Some("a"), SetIf::Present, Reply::OK, true),
            (Some("a"), SetIf::Equal("a".into()), Reply::OK, true),
            (Some("b"), SetIf::Equal("a".into()), Reply::Null, false),
            (None, SetIf::Equal("a".into()), Reply::Null, false),
        ];
        for (before, condition, expected, changes) in cases {
            let op = SetOp {
                condition: condition.clone(),
                ..set("new")
            };
            let mut key = state(before, Some(NOW + 5));
            assert_eq!(KeyOp::Set(op.clone()).apply(&mut key), Ok(expected));
            assert_eq!(key.is_changed, changes, "{before:?} {condition:?}");
            if changes {
                assert_eq!(key.entry.unwrap().expires_at_ms, None, "SET drops it");
            }
            let mut key = state(before, None);
            let op = SetOp {
                tells_old: true,
                ..op
            };
            let old = before.map(|it| Bytes::copy_from_slice(it.as_bytes()));
            assert_eq!(KeyOp::Set(op).apply(&mut key), Ok(Reply::of(old)));
        }
    }

    #[test]
    fn an_expiry_is_kept_set_dropped_or_deletes_when_it_is_over() {
        let cases = [
            (Expiry::Keep, Some(Some(NOW + 7))),
            (Expiry::Never, Some(None)),
            (Expiry::In(10), Some(Some(NOW + 10))),
            (Expiry::At(NOW as i64 + 3), Some(Some(NOW + 3))),
            (Expiry::At(5), None),
            (Expiry::In(0), None),
            (Expiry::In(-5_000_000), None),
        ];
        for (expiry, expected) in cases {
            let set = SetOp {
                expiry,
                ..set("new")
            };
            let mut key = state(Some("a"), Some(NOW + 7));
            assert_eq!(KeyOp::Set(set).apply(&mut key), Ok(Reply::OK));
            let after = key.entry.map(|entry| entry.expires_at_ms);
            assert_eq!(after, expected, "{expiry:?}");
            let mut key = state(Some("a"), Some(NOW + 7));
            assert_eq!(
                KeyOp::GetEx(expiry).apply(&mut key),
                Ok(Reply::Bulk("a".into()))
            );
            assert_eq!(key.is_changed, expiry != Expiry::Keep);
            assert_eq!(key.entry.map(|it| it.expires_at_ms), expected, "{expiry:?}");
        }
    }

    #[test]
    fn expire_obeys_its_options() {
        let when = |text: &str| ExpiryIf {
            has_one: match text {
                "NX" => Some(false),
                "XX" => Some(true),
                _ => None,
            },
            order: match text {
                "GT" => Some(Ordering::Greater),
                "LT" => Some(Ordering::Less),
                _ => None,
            },
        };
        let (later, sooner) = (Expiry::In(20), Expiry::In(5));
        let cases = [
            ("", None, later, 1),
            ("NX", None, later, 1),
            ("NX", Some(NOW + 10), later, 0),
            ("XX", None, later, 0),
            ("XX", Some(NOW + 10), later, 1),
            ("GT", None, later, 0),
            ("GT", Some(NOW + 10), later, 1),
            ("GT", Some(NOW + 10), sooner, 0),
            ("LT", None, later, 1),
            ("LT", Some(NOW + 10), later, 0),
            ("LT", Some(NOW + 10), sooner, 1),
        ];
        for (options, before, expiry, expected) in cases {
            let mut key = state(Some("a"), before);
            let reply = KeyOp::Expire(expiry, when(options)).apply(&mut key);
            assert_eq!(reply, Ok(Reply::Integer(expected)), "{options} {before:?}");
            assert_eq!(key.is_changed, expected == 1);
        }
        let mut absent = state(None, None);
        assert_eq!(
            KeyOp::Expire(later, when("")).apply(&mut absent),
            Ok(Reply::Integer(0))
        );
    }

    #[test]
    fn numbers_are_added_to_and_keep_their_expiry() {
        let mut key = state(Some("41"), Some(NOW + 5));
        assert_eq!(KeyOp::IncrBy(1).apply(&mut key), Ok(Reply::Integer(42)));
        assert_eq!(key.entry.as_ref().unwrap().expires_at_ms, Some(NOW + 5));
        assert_eq!(
            KeyOp::IncrByFloat("0.5".into()).apply(&mut key),
            Ok(Reply::Bulk("42.5".into()))
        );
        assert_eq!(
            KeyOp::IncrBy(1).apply(&mut key),
            Err(CommandError::NotInteger)
        );
        let mut most = state(Some("9223372036854775807"), None);
        assert_eq!(
            KeyOp::IncrBy(1).apply(&mut most),
            Err(CommandError::Overflow)
        );
        assert!(!most.is_changed, "what is refused changes nothing");
        let mut absent = state(None, None);
        assert_eq!(KeyOp::IncrBy(-3).apply(&mut absent), Ok(Reply::Integer(-3)));
    }

    #[test]
    fn a_value_grows_up_to_its_bound() {
        let mut key = state(None, None);
        assert_eq!(
            KeyOp::Append("ab".into()).apply(&mut key),
            Ok(Reply::Integer(2))
        );
        assert_eq!(
            KeyOp::Append("cd".into()).apply(&mut key),
            Ok(Reply::Integer(4))
        );
        let before = key.clone();
        let tail = Bytes::from(vec![b'x'; 97]);
        let too_long = Err(CommandError::TooLong {
            len: 101,
            most: 100,
        });
        assert_eq!(KeyOp::Append(tail).apply(&mut key), too_long);
        let value = Bytes::from(vec![b'x'; 101]);
        let op = KeyOp::Set(SetOp::plain(value));
        assert!(!op.is_blind(100));
        assert_eq!(op.apply(&mut key), too_long);
        assert_eq!(key, before);
    }

    #[test]
    fn ranges_are_cut_as_in_redis() {
        let cases = [
            (0, 3, "This"),
            (-3, -1, "ing"),
            (0, -1, "This is a string"),
            (10, 100, "string"),
            (5, 3, ""),
            (-1, -3, ""),
            (100, 200, ""),
            (-100, 0, "T"),
            (i64::MIN, i64::MAX, "This is a string"),
        ];
        for (start, end, expected) in cases {
            let mut key = state(Some("This is a string"), None);
            let reply = KeyOp::GetRange(start, end).apply(&mut key);
            assert_eq!(reply, Ok(Reply::Bulk(expected.into())), "{start} {end}");
        }
        let mut absent = state(None, None);
        assert_eq!(
            KeyOp::GetRange(0, -1).apply(&mut absent),
            Ok(Reply::Bulk(Bytes::new()))
        );
    }

    #[test]
    fn times_are_told_rounded_or_as_they_are() {
        let told = |key: &KeyState| {
            [
                KeyOp::Ttl(Unit::Seconds),
                KeyOp::Ttl(Unit::Milliseconds),
                KeyOp::ExpireTime(Unit::Seconds),
                KeyOp::ExpireTime(Unit::Milliseconds),
            ]
            .map(|op| op.apply(&mut key.clone()).unwrap())
        };
        assert_eq!(told(&state(None, None)), [-2; 4].map(Reply::Integer));
        assert_eq!(told(&state(Some("a"), None)), [-1; 4].map(Reply::Integer));
        let times = [2, 1_500, 1_002, 1_001_500].map(Reply::Integer);
        assert_eq!(told(&state(Some("a"), Some(NOW + 1_500))), times);
    }
}

//! The names of clusters, data directories, starts and bearer tokens.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const ID_LEN: usize = 16;

/// Text that is not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 32 hexadecimal digits")]
pub struct ParseIdError;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(ParseIdError);
                }
                let number = u128::from_str_radix(text, 16).map_err(|_| ParseIdError)?;
                Ok(Self(number.to_be_bytes()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

random_id! {
    /// 128 random bits that name a cluster.
    ClusterId
}

random_id! {
    /// 128 random bits that name a data directory: a wiped disk gets another name.
    Incarnation
}

/// One start of a process with a data directory. The default is older than every other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// Grows with every confirmed start.
    pub number: u64,
    /// Random for this start: two copies of a directory that take the same number differ in it.
    pub draw: u64,
}

impl Boot {
    /// Whether the start `known` proves that this process has an older copy or a clone of
    /// the data directory.
    #[must_use]
    pub const fn is_superseded_by(self, known: Self) -> bool {
        known.number > self.number || (known.number == self.number && known.draw != self.draw)
    }
}

/// The public half of a bearer token: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BearerId(pub u64);

/// Text that is not a bearer token or an id of one. Does not contain the text, which may be a
/// secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a token as `kvctl token create` prints it: 16 hexadecimal digits, a dot, and 64 more"
)]
pub struct MalformedBearer;

impl fmt::Display for BearerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for BearerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BearerId {
    type Err = MalformedBearer;

    fn from_str(text: &str) -> Result<Self, MalformedBearer> {
        if text.len() != ID_LEN {
            return Err(MalformedBearer);
        }
        let mut id = 0;
        for digit in text.bytes() {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(MalformedBearer),
            };
            id = id << 4 | u64::from(value);
        }
        Ok(Self(id))
    }
}

impl TryFrom<String> for BearerId {
    type Error = MalformedBearer;

    fn try_from(text: String) -> Result<Self, MalformedBearer> {
        text.parse()
    }
}

impl From<BearerId> for String {
    fn from(id: BearerId) -> Self {
        id.to_string()
    }
}

/// Whether a byte is a digit of an id or a secret.
pub(super) const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_form_and_other_text_is_refused() {
        let id = ClusterId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        let long = "0".repeat(33);
        let sign = format!("+{}", "0".repeat(31));
        for text in ["", "xyz", long.as_str(), sign.as_str()] {
            assert_eq!(text.parse::<ClusterId>(), Err(ParseIdError), "{text:?}");
        }
    }
}

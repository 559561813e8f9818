//! Arguments that several commands share, checked before anything is sent.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use torc_client::{Client, QuorumSize};
use torc_record::Key;

use crate::failure::Failure;
use crate::format::BASE64;

/// A node's gRPC address: `host:port`, `http://host:port` or `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint(String);

impl Endpoint {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches('/');
        let mut schemes = ["https://", "http://"].iter();
        let bare = schemes.find_map(|scheme| text.strip_prefix(scheme));
        bare.unwrap_or(text).parse::<Address>()?;
        Ok(Self(text.to_owned()))
    }
}

/// `host:port`; an IPv6 host in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) String);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not an address: use host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let brackets = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
        let bare = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let inside = |c: char| c.is_ascii_hexdigit() || ":.%".contains(c);
        let host_fits = if brackets {
            host[1..host.len() - 1].chars().all(inside)
        } else {
            !host.is_empty() && host.chars().all(bare)
        };
        match port.parse::<u16>() {
            Ok(1..) if host_fits => Ok(Self(text.to_owned())),
            _ => Err(refused()),
        }
    }
}

/// A key and its encoding on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// The key, 1 to 1,024 bytes, as plain text unless you name an encoding.
    #[arg(value_name = "KEY")]
    key: OsString,
    /// KEY is in hexadecimal digits.
    #[arg(long, conflicts_with = "key_base64")]
    key_hex: bool,
    /// KEY is in base64.
    #[arg(long)]
    key_base64: bool,
}

/// How many replicas must answer.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct QuorumArgs {
    /// Replicas that must answer; in eventual namespaces only. Default: majority.
    #[arg(long, value_enum, value_name = "HOW_MANY")]
    quorum: Option<HowMany>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HowMany {
    /// One.
    One,
    /// More than half.
    Majority,
    /// All.
    All,
}

impl QuorumArgs {
    /// The client with this quorum.
    pub(crate) fn of(self, client: Client) -> Client {
        match self.quorum {
            None => client,
            Some(HowMany::One) => client.with_quorum(QuorumSize::One),
            Some(HowMany::Majority) => client.with_quorum(QuorumSize::Majority),
            Some(HowMany::All) => client.with_quorum(QuorumSize::All),
        }
    }
}

impl KeyArgs {
    /// The key's bytes.
    ///
    /// # Errors
    /// [`Failure::Usage`] when the key is not in the named encoding, and
    /// [`Failure::OutOfBounds`] when it is not 1 to 1,024 bytes long.
    pub(crate) fn key(&self) -> Result<Bytes, Failure> {
        let written = self.key.as_encoded_bytes();
        let refused = |problem: &str| {
            let shown = crate::text::shortened(written, 40);
            format!("`{shown}` is not a valid key: {problem}")
        };
        let not_in = |encoding: &str| Failure::Usage(refused(&format!("it is not {encoding}")));
        let bytes = if self.key_hex {
            hex(written).ok_or_else(|| not_in("pairs of hexadecimal digits"))?
        } else if self.key_base64 {
            BASE64.decode(written).map_err(|_| not_in("base64"))?
        } else {
            written.to_vec()
        };
        let key = Key::new(bytes);
        key.map(Key::into_bytes)
            .map_err(|error| Failure::OutOfBounds(refused(&error.to_string())))
    }
}

pub(crate) fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

/// A span of time that is not zero, as in `10m` or `1h 30m`.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if span >= Duration::from_millis(1) => Ok(span),
        Ok(_) => Err("use 1ms or more".to_owned()),
        Err(_) => {
            Err("use a number with a unit, for example 500ms, 30s, 10m, 1h, 7days".to_owned())
        }
    }
}

/// A number of bytes, as in `512MiB` or `4GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1_u64 << 40),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| "use a number with a unit, for example 512MiB or 4GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_do_not_overflow() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("3GiB"), Ok(3 << 30));
        for bad in [
            "64",
            "MiB",
            "",
            "1.5GiB",
            "-1GiB",
            "1 GiB",
            "99999999999TiB",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    fn key(written: &str, key_hex: bool, key_base64: bool) -> Result<Bytes, String> {
        let args = KeyArgs {
            key: written.into(),
            key_hex,
            key_base64,
        };
        args.key().map_err(|failure| failure.to_string())
    }

    #[test]
    fn keys_are_text_unless_an_encoding_is_named() {
        assert_eq!(key("ff00", false, false).unwrap(), "ff00");
        assert_eq!(key("ff00", true, false).unwrap(), &b"\xff\x00"[..]);
        assert_eq!(key("/wA=", false, true).unwrap(), &b"\xff\x00"[..]);
        assert_eq!(key("/wA", false, true).unwrap(), &b"\xff\x00"[..]);
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_reason() {
        let empty = KeyArgs {
            key: "".into(),
            key_hex: false,
            key_base64: false,
        };
        assert_eq!(empty.key().unwrap_err().code() as u8, 6, "a limit");
        let odd = KeyArgs {
            key: "f".into(),
            key_hex: true,
            key_base64: false,
        };
        assert_eq!(odd.key().unwrap_err().code() as u8, 2, "an encoding");
        assert_eq!(
            key("", false, false).unwrap_err(),
            "`` is not a valid key: a key has at least 1 byte"
        );
        assert!(
            key(&"k".repeat(1025), false, false)
                .unwrap_err()
                .contains("1025 bytes")
        );
        for odd in ["f", "fff", "fg", "0x1f"] {
            assert!(key(odd, true, false).is_err(), "{odd}");
        }
        assert!(key("*", false, true).unwrap_err().contains("not base64"));
    }

    #[cfg(unix)]
    #[test]
    fn an_argument_need_not_be_utf8() {
        use std::os::unix::ffi::OsStringExt as _;
        let args = KeyArgs {
            key: OsString::from_vec(vec![0xff, 0xfe]),
            key_hex: false,
            key_base64: false,
        };
        assert_eq!(args.key().unwrap(), &b"\xff\xfe"[..]);
    }

    #[test]
    fn an_endpoint_is_host_port_with_or_without_a_scheme() {
        let of = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.0);
        assert_eq!(
            of("http://127.0.0.1:7400/"),
            Ok("http://127.0.0.1:7400".into())
        );
        assert_eq!(of("node-1.example:7400"), Ok("node-1.example:7400".into()));
        assert_eq!(of("[::1]:7400"), Ok("[::1]:7400".into()));
        assert_eq!(of("https://h:1"), Ok("https://h:1".into()));
        for text in [
            "",
            "host",
            "host:",
            "host:0",
            "host:70000",
            ":1",
            "a b:1",
            "http://h:1/x",
            "ftp://h:1",
            "[]:1",
        ] {
            assert!(of(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_are_positive() {
        assert_eq!(positive_duration("10m"), Ok(Duration::from_secs(600)));
        assert!(positive_duration("0s").is_err());
        assert!(positive_duration("1us").is_err());
        assert!(
            positive_duration("ten")
                .unwrap_err()
                .contains("for example")
        );
    }
}

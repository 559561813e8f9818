//! `kvctl get`: prints a value.

use serde::Serialize;
use torc_client::{Consistency, GetOptions};

use crate::args::{KeyArgs, QuorumArgs};
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::global::Global;
use crate::out::{Out, note};

/// Print the value of a key, byte for byte.
///
/// With `--output json`: an object with key, value, version and `expires_at_ms`, if the
/// value expires. If the namespace does not store its keys, kvctl prints on standard error that the
/// key is only probably present. Exit code 1: the key has no value.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// How fresh the value must be. Default: what the namespace promises.
    #[arg(long, value_enum)]
    consistency: Option<Freshness>,
    #[command(flatten)]
    quorum: QuorumArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Freshness {
    /// The newest acknowledged value; not available in eventual namespaces.
    Linearizable,
    /// The value that the asked node has; may be old.
    Stale,
}

impl From<Freshness> for Consistency {
    fn from(freshness: Freshness) -> Self {
        match freshness {
            Freshness::Linearizable => Self::Linearizable,
            Freshness::Stale => Self::Stale,
        }
    }
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let key = args.key.key()?;
    let options = GetOptions {
        consistency: args.consistency.map(Into::into).unwrap_or_default(),
    };
    let client = args.quorum.of(global.client()?);
    let Some(found) = client.get_with(key.clone(), options).await? else {
        let key = crate::text::shortened(&key, 80);
        return Err(Failure::KeyNotFound { key });
    };
    let rate = found.false_positive_rate();
    if !global.json() {
        if rate > 0.0 {
            note(format_args!(
                "probably present: an absent key looks present with probability {rate:.1e}"
            ));
        }
        return out.raw(&found.value);
    }
    let record = JsonRow::key(&key)
        .value(&found.value)
        .expires_at_ms(found.expires_at_ms)
        .version(found.version);
    let false_positive_rate = (rate > 0.0).then_some(rate);
    out.json(&Found {
        record,
        false_positive_rate,
    })
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    record: JsonRow<'a>,
    /// Of a key that is only probably present.
    #[serde(skip_serializing_if = "Option::is_none")]
    false_positive_rate: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Found {
            record: JsonRow::key(b"k").value(b"v"),
            false_positive_rate: Some(0.5),
        });
    }
}

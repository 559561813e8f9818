//! `kvctl get`: prints a value.

use torc_client::{Consistency, GetOptions};

use crate::args::{KeyArgs, QuorumArgs};
use crate::cli::Global;
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::out::Out;

/// Print the value of a key: its bytes and nothing else.
///
/// With `--output json` an object with key, value, version and, where there is one,
/// `expires_at_ms`. Exit code 1: the key has no value.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// How fresh the value must be; as the namespace promises if not given.
    #[arg(long, value_enum)]
    consistency: Option<Freshness>,
    #[command(flatten)]
    quorum: QuorumArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Freshness {
    /// The newest acknowledged value; refused in an eventual namespace.
    Linearizable,
    /// Whatever the node that is asked has; may be old.
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
    if !global.json() {
        return out.raw(&found.value);
    }
    let row = JsonRow::key(&key)
        .value(&found.value)
        .expires_at_ms(found.expires_at_ms)
        .version(found.version);
    out.json(&row)
}

//! `kvctl get`: prints a value.

use torc_client::{Consistency, GetOptions};

use crate::args::{KeyArgs, QuorumArgs};
use crate::cli::Global;
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::out::Out;

/// Print the value of a key, byte for byte.
///
/// With `--output json`: an object with key, value, version and `expires_at_ms`, if the
/// value expires. Exit code 1: the key has no value.
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
    if !global.json() {
        return out.raw(&found.value);
    }
    let row = JsonRow::key(&key)
        .value(&found.value)
        .expires_at_ms(found.expires_at_ms)
        .version(found.version);
    out.json(&row)
}

//! `kvctl delete`: removes a value.

use serde::Serialize;
use torc_client::Version;

use super::put::condition;
use crate::args::{KeyArgs, QuorumArgs};
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;

/// Delete a key. Deleting a key without a value succeeds.
///
/// Exit code 4: the condition did not hold, and nothing was deleted. Exit code 5: the
/// outcome is unknown; delete again if no other client writes the key.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// Delete only if the key has this version, as `put` or `explain` prints it.
    #[arg(long, value_name = "VERSION")]
    if_version: Option<Version>,
    #[command(flatten)]
    quorum: QuorumArgs,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Gone {
    existed: bool,
    version: String,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let key = args.key.key()?;
    let condition = condition(false, args.if_version);
    let client = args.quorum.of(global.client()?);
    let deleted = client.delete_with(key, condition).await?;
    if global.json() {
        let version = deleted.version.to_string();
        let existed = deleted.existed;
        return out.json(&Gone { existed, version });
    }
    out.line(if deleted.existed {
        "deleted"
    } else {
        "the key had no value"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented() {
        let version = "1.2.3".to_owned();
        crate::out::assert_documented(&Gone {
            existed: true,
            version,
        });
    }
}

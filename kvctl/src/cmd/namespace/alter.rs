//! `kvctl namespace alter`: changes the number of replicas.

use torc_client::AlterOptions;

use crate::cmd::change::{self, ChangeArgs};
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};

/// The namespace and its new settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The namespace, as `namespace list` shows it.
    #[arg(value_name = "NAME")]
    name: String,
    /// New number of replicas of each key, at most the number of nodes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5))]
    replicas: u32,
    /// Also alter the namespaces that share partitions with this one; the plan names them.
    #[arg(long)]
    with_all: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(super) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?;
    let Args { name, replicas, .. } = args;
    if args.change.plan {
        let plan = client.plan_alter_namespace(&name, replicas).await?;
        change::show_plan(&plan, global, out)?;
        let others = others(&plan.namespaces, &name);
        if !others.is_empty() && !args.with_all {
            note(format_args!(
                "this also changes {others}: to carry it out, pass `--with-all`"
            ));
        }
        return Ok(());
    }
    let options = AlterOptions {
        parallel: args.change.parallel,
        with_all: args.with_all,
    };
    let begun = client.alter_namespace(&name, replicas, options).await?;
    change::follow(&client, &begun, &args.change, global, out).await
}

/// The other namespaces that change.
fn others(changed: &[String], name: &str) -> String {
    let others = changed.iter().filter(|other| *other != name);
    others.cloned().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_itself_is_none_of_the_others() {
        let changed = ["a", "b", "default"].map(str::to_owned);
        assert_eq!(others(&changed, "b"), "a, default");
        assert_eq!(others(&changed[1..2], "b"), "");
    }
}

//! `kvctl namespace`: creates, alters, drops, lists and compares key spaces.

mod alter;
mod overlap;

use serde::Serialize;
use torc_client::{Namespace, NamespaceMode, NodeId};

use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::table::{Align, Table};
use crate::text;

/// Create, alter, drop, list or compare namespaces: key spaces with their own settings.
///
/// The same key in two namespaces is two keys. Other commands use `--namespace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a namespace. You can alter the number of replicas later, but not the mode.
    /// Repeating the command with the same settings is harmless.
    Create(CreateArgs),
    /// Change the number of replicas of a namespace.
    ///
    /// Shows the plan, then the progress until every partition has changed; the cluster keeps
    /// serving. Namespaces that share partitions change together: the plan names them, and you
    /// must pass `--with-all`. Going from one replica to three triples the data of each node:
    /// check the plan and the disks first.
    Alter(alter::Args),
    /// Delete a namespace and all of its keys. You cannot undo this.
    ///
    /// Returns when no node serves it any more; names the nodes that do not respond. Nodes then
    /// delete the keys in the background; until they are done, `namespace list` shows the namespace
    /// as dropped. You can reuse the name at once.
    Drop {
        /// The namespace.
        #[arg(value_name = "NAME")]
        name: String,
        /// Confirm the deletion.
        #[arg(long)]
        yes: bool,
    },
    /// List the namespaces by name.
    List,
    /// Estimate how many keys two namespaces share, and the join size of their accesses.
    ///
    /// Every node reads its records once, in the background, and sends sketches of a few MiB. Fails
    /// if a node does not answer. Accesses are those of the hottest keys; if nodes do not count
    /// them, there is no join size, and stderr says so.
    Overlap(overlap::Args),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Name: 1 to 64 characters of `a-z`, `0-9`, `-`, `_` and `.`.
    #[arg(value_name = "NAME")]
    name: String,
    /// How the replicas of a key agree; cannot be changed later.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Linearizable)]
    mode: Mode,
    /// Replicas of each key. Default: as in the namespace `default`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5))]
    replicas: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Every read sees the newest acknowledged write of its key.
    Linearizable,
    /// The last writer wins, by hybrid clock; `--quorum` says how many replicas must answer.
    Eventual,
    /// Built outside the cluster and replaced as a whole (see `kvctl generation`). Any replica
    /// answers.
    Static,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match args.action {
        Action::Create(args) => {
            let client = global.client()?;
            let mode = match args.mode {
                Mode::Linearizable => NamespaceMode::Linearizable,
                Mode::Eventual => NamespaceMode::Eventual,
                Mode::Static => NamespaceMode::Static,
            };
            let created = client.create_namespace(args.name, mode, args.replicas);
            let created = created.await?;
            if global.json() {
                return out.json(&created);
            }
            out.line(describe_created(&created))
        }
        Action::Alter(args) => alter::run(args, global, out).await,
        Action::Drop { name, yes } => drop_it(name, yes, global, out).await,
        Action::List => {
            let namespaces = global.client()?.namespaces().await?;
            if global.json() {
                return namespaces.iter().try_for_each(|each| out.json(each));
            }
            out.line(table(&namespaces))
        }
        Action::Overlap(args) => overlap::run(args, global, out).await,
    }
}

async fn drop_it(name: String, yes: bool, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if !yes {
        return Err(Failure::Usage(format!(
            "nothing was changed: dropping `{name}` deletes all of its keys for good; to confirm, add `--yes`"
        )));
    }
    let unconfirmed = global.client()?.drop_namespace(&name).await?;
    if !unconfirmed.is_empty() {
        note(format_args!(
            "{} does not respond and may serve `{name}` until it reconnects",
            text::nodes(&unconfirmed)
        ));
    }
    if global.json() {
        return out.json(&Dropped { name, unconfirmed });
    }
    out.line(format_args!("dropped namespace `{name}`"))
}

/// What `namespace drop` prints.
#[derive(Debug, Serialize)]
struct Dropped {
    name: String,
    unconfirmed: Vec<NodeId>,
}

fn describe_created(created: &Namespace) -> String {
    let Namespace { name, id, .. } = created;
    format!(
        "namespace `{name}` (id {}), {}, {}",
        id.0,
        created.mode,
        text::replicas(created.replicas),
    )
}

fn table(namespaces: &[Namespace]) -> Table {
    let mut table = Table::new(&[
        ("namespace", Align::Left),
        ("id", Align::Right),
        ("mode", Align::Left),
        ("replicas", Align::Right),
    ]);
    for namespace in namespaces {
        let name = &namespace.name;
        table.row([
            if namespace.is_dropped {
                format!("{name} (dropped)")
            } else {
                name.clone()
            },
            namespace.id.0.to_string(),
            namespace.mode.to_string(),
            namespace.replicas.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::NamespaceId;

    fn urls() -> Namespace {
        Namespace {
            name: "urls".into(),
            id: NamespaceId(2),
            mode: NamespaceMode::Linearizable,
            replicas: 3,
            is_dropped: false,
        }
    }

    #[test]
    fn a_namespace_is_shown_with_its_settings() {
        assert_eq!(
            describe_created(&urls()),
            "namespace `urls` (id 2), linearizable, 3 replicas"
        );
        assert_eq!(
            table(&[urls()]).to_string(),
            "namespace  id  mode          replicas\nurls        2  linearizable         3"
        );
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&urls());
        let json = serde_json::to_string(&urls()).unwrap();
        let expected =
            r#"{"name":"urls","id":2,"mode":"linearizable","replicas":3,"is_dropped":false}"#;
        assert_eq!(json, expected);
    }
}

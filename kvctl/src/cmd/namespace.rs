//! `kvctl namespace`: creates, alters, drops, lists and compares key spaces.

mod alter;
mod overlap;

use serde::Serialize;
use torc_client::{Namespace, NamespaceMode, NodeId};

use crate::cli::Global;
use crate::failure::Failure;
use crate::out::{Out, note};
use crate::table::{Align, Table};
use crate::text;

/// Create, alter, drop, list or compare namespaces: key spaces with settings of their own.
///
/// Keys of two namespaces never meet. Other commands work in the one that `--namespace`
/// names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a namespace. Its mode is fixed for its life, the number of replicas can be altered;
    /// asking again with the same settings is harmless.
    Create(CreateArgs),
    /// Give each key of a namespace another number of replicas.
    ///
    /// Shows the plan, then the progress until every partition has changed; requests go on
    /// meanwhile. Namespaces that share partitions change together: the plan names them, and if
    /// there are others this needs `--with-all`. Where keys go from one replica to three, what
    /// each node holds triples: look at the plan and the disks first.
    Alter(alter::Args),
    /// Drop a namespace and all of its keys. There is no way back.
    ///
    /// Returns when no node answers from it any more; nodes that cannot be reached are named. Nodes then delete the
    /// keys in the background, and `namespace list` shows the namespace as dropped until they are done. The name can
    /// be given again at once.
    Drop {
        /// The namespace.
        #[arg(value_name = "NAME")]
        name: String,
        /// Really drop it.
        #[arg(long)]
        yes: bool,
    },
    /// List the namespaces by name.
    List,
    /// Estimate how many keys two namespaces share, and how large the join of their accesses is.
    ///
    /// Every node reads its records once, in the background, and sends sketches of a few MiB. What cannot be
    /// had from some node is an error. Accesses are those of the hottest keys; where they are not
    /// counted, there is no join size, which stderr says.
    Overlap(overlap::Args),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    #[arg(value_name = "NAME")]
    name: String,
    /// How the replicas of a key agree; fixed for the namespace's life.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Linearizable)]
    mode: Mode,
    /// Replicas of each key; as many as those of `default` if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5))]
    replicas: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Every key is one register.
    Linearizable,
    /// The last writer wins, by hybrid clock; `--quorum` says how many replicas must answer.
    Eventual,
    /// Built outside and replaced as a whole: see `kvctl generation`. Any one replica answers.
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
            "dropping `{name}` deletes all of its keys for good: repeat this with `--yes`. Nothing was changed"
        )));
    }
    let unheard = global.client()?.drop_namespace(&name).await?;
    if !unheard.is_empty() {
        note(format_args!(
            "{} cannot be reached and may answer from `{name}` until it hears of this",
            text::nodes(&unheard)
        ));
    }
    if global.json() {
        return out.json(&Dropped { name, unheard });
    }
    out.line(format_args!("dropped namespace `{name}`"))
}

/// What `namespace drop` tells.
#[derive(Debug, Serialize)]
struct Dropped {
    name: String,
    unheard: Vec<NodeId>,
}

const fn mode(mode: NamespaceMode) -> &'static str {
    match mode {
        NamespaceMode::Linearizable => "linearizable",
        NamespaceMode::Eventual => "eventual",
        NamespaceMode::Static => "static",
    }
}

fn describe_created(created: &Namespace) -> String {
    let Namespace { name, id, .. } = created;
    format!(
        "namespace `{name}` (id {}), {}, {}",
        id.0,
        mode(created.mode),
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
            mode(namespace.mode).to_owned(),
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

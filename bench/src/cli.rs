//! The command line: `torc-bench SUITE [--json] [--rounds N] [--quick] [--plot DIR]`.

use clap::{Parser, Subcommand};

use crate::bulk;
use crate::cleanup::BoundArgs;
use crate::hot;
use crate::index;
use crate::join;
use crate::options::Options;
use crate::sketch;
use crate::store::{self, child::ChildArgs};
use crate::theory;
use crate::wire::paths::echo::EchoArgs;
use crate::wire::{load, memory, paths, replicas, resp};

/// Measure Torc beside its peers: figures are medians of several rounds, in which the
/// subjects take turns
///
/// Trust ratios within one run more than figures of different runs. Repeat a run if its
/// spread is large or the load average shows a busy machine.
#[derive(Debug, Parser)]
#[command(name = "torc-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) suite: Suite,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// The suite.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Suite {
    /// Balance, movement, lookups and planning of the ring, beside random positions and
    /// pingora-ketama
    Ring,
    /// Size, building and lookups of the sealed records' index, beside `ptr_hash`, sux and ph
    Index(index::Args),
    /// A minimal perfect hash function of keys on disk, built out of core; then lookups of every
    /// key
    Bulk(bulk::Args),
    /// Counting, hot keys, joins, search and chunks of the sketches, beside datasketches,
    /// heavykeeper, aho-corasick and fastcdc
    Sketch(sketch::Args),
    /// Durable puts, gets, memory, disk and opening of the store, beside sled, redb, fjall,
    /// LMDB and RocksDB
    Store(store::Args),
    /// A kvd process over the wire, beside redis, memcached and etcd where they are installed
    Wire,
    /// The port for Redis clients beside redis-server, with one client; three nodes beside etcd
    Resp(resp::Args),
    /// Gets of a node with TLS, by certificate and by token, beside one without
    Tls,
    /// Processor time of the servers for each operation, on one node and on three, beside an
    /// earlier build
    Paths(paths::Args),
    /// Three kvd processes with three replicas of each key, beside three of etcd where it is
    /// installed; then with a slow node, a dead one, and five times the load
    Replicas(replicas::Args),
    /// Balance of a skewed workload's gets over the nodes, with and without the client's
    /// relief of hot keys
    Hot(hot::Args),
    /// A fourth node joining three under traffic, beside a plain copy of the same bytes
    Join(join::Args),
    /// Rate at which `kvctl load` and the client library store records: three replicas beside one
    Load(load::Args),
    /// Memory of kvd processes per sealed key, beside redis and memcached where they are
    /// installed
    Ram(memory::Args),
    /// Claims of the paper, the essay and the lecture beside our measurements, with plots
    Theory(theory::Args),
    /// One task of the store suite, in a process of its own
    #[command(hide = true)]
    StoreChild(ChildArgs),
    /// An echo server, to compare with
    #[command(hide = true)]
    Echo(EchoArgs),
    /// Another program, for as long as its parent lives
    #[command(hide = true)]
    Bound(BoundArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_may_stand_before_and_after_the_suite() {
        for args in [
            ["torc-bench", "--json", "ring"],
            ["torc-bench", "ring", "--json"],
        ] {
            assert!(Cli::try_parse_from(args).unwrap().options.json);
        }
        assert!(Cli::try_parse_from(["torc-bench", "ring", "--rounds", "0"]).is_err());
    }

    #[test]
    fn a_quick_run_is_smaller_unless_it_is_told_how_large() {
        let parse = |args: &[&str]| Cli::try_parse_from(args).unwrap().options;
        assert_eq!(parse(&["", "store"]).records_or(1_000_000), 1_000_000);
        assert_eq!(
            parse(&["", "store", "--quick"]).records_or(1_000_000),
            20_000
        );
        let told = parse(&["", "store", "--quick", "--records", "5000"]);
        assert_eq!(told.records_or(1_000_000), 5_000);
    }
}

//! Nodes in their own network namespaces, where faults cut or delay packets, those of the
//! topology group included. Clients are outside and reach every node.
//!
//! A bridge in a separate namespace connects them, so this machine's packet filter does not
//! affect them. Needs root, and the programs `ip`, `nft` and `tc`. A run cleans up at its end;
//! after SIGKILL, `ip netns` shows the leftovers.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The last byte of the outside address.
const OUTSIDE: u8 = 254;
/// Limits of a slow link, if packets cannot be delayed by a given time.
const SLOW_RATE: [&str; 6] = ["rate", "1mbit", "burst", "4kb", "latency", "2s"];

/// The network of one run.
#[derive(Debug)]
struct Hub {
    /// This program's process id, which is part of all names.
    run: u32,
}

/// The network of all nodes.
#[derive(Debug, Clone)]
pub(super) struct Network(Arc<Hub>);

/// One node's end of the network; removed when dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    hub: Arc<Hub>,
    number: u8,
}

impl Hub {
    fn name(&self) -> String {
        format!("torc-{}", self.run)
    }

    fn address(&self, number: u8) -> Ipv4Addr {
        let [.., high, low] = self.run.to_be_bytes();
        Ipv4Addr::new(10, high, low, number)
    }
}

impl Network {
    /// Creates an empty network; returns the system's message on failure.
    pub(super) fn make() -> Result<Self, String> {
        let hub = Arc::new(Hub {
            run: std::process::id(),
        });
        let name = hub.name();
        let outside = format!("torc{}", hub.run);
        run("ip", &["netns", "add", &name])?;
        // From here on, dropping it removes what was created.
        let network = Self(Arc::clone(&hub));
        let ip = |args: &[&str]| run("ip", &[&["-n", &name], args].concat());
        ip(&["link", "add", "bridge", "type", "bridge"])?;
        ip(&["link", "set", "bridge", "up"])?;
        let peer = ["peer", "name", "outside", "netns", &name];
        run(
            "ip",
            &[&["link", "add", &outside, "type", "veth"], &peer[..]].concat(),
        )?;
        ip(&["link", "set", "outside", "master", "bridge", "up"])?;
        let address = format!("{}/24", hub.address(OUTSIDE));
        run("ip", &["address", "add", &address, "dev", &outside])?;
        run("ip", &["link", "set", &outside, "up"])?;
        run("nft", &["--version"])?;
        Ok(network)
    }

    /// A node's end of the network.
    pub(super) fn join(&self, number: u32) -> Result<Namespace, String> {
        let number = u8::try_from(number).ok().filter(|number| *number < OUTSIDE);
        let number = number.ok_or("a run has at most 253 nodes in a network")?;
        let (hub, space) = (self.0.name(), format!("{}-{number}", self.0.name()));
        run("ip", &["netns", "add", &space])?;
        let namespace = Namespace {
            hub: Arc::clone(&self.0),
            number,
        };
        let port = format!("port{number}");
        let ends = [
            "node", "netns", &space, "type", "veth", "peer", "name", &port,
        ];
        run(
            "ip",
            &[&["link", "add"], &ends[..], &["netns", &hub]].concat(),
        )?;
        run(
            "ip",
            &["-n", &hub, "link", "set", &port, "master", "bridge", "up"],
        )?;
        let address = format!("{}/24", namespace.address());
        run(
            "ip",
            &["-n", &space, "address", "add", &address, "dev", "node"],
        )?;
        for link in ["lo", "node"] {
            run("ip", &["-n", &space, "link", "set", link, "up"])?;
        }
        Ok(namespace)
    }
}

impl Namespace {
    fn name(&self) -> String {
        format!("{}-{}", self.hub.name(), self.number)
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.hub.address(self.number)
    }

    /// The words that, before a command, run it in the namespace, with its own process id.
    pub(super) fn entering(&self) -> [String; 4] {
        let words = ["ip", "netns", "exec", &self.name()];
        words.map(str::to_owned)
    }

    /// Drops all packets to and from these addresses, and passes all others.
    pub(super) fn drop_packets(&self, to: &[Ipv4Addr], from: &[Ipv4Addr]) -> Result<(), String> {
        let rules = |field: &str, addresses: &[Ipv4Addr]| {
            let each = addresses.iter();
            let each = each.map(|address| format!("ip {field} {address} drop;"));
            each.collect::<String>()
        };
        let script = format!(
            "flush ruleset\n\
             table ip torc {{\n\
             chain to {{ type filter hook output priority 0; {} }}\n\
             chain from {{ type filter hook input priority 0; {} }}\n\
             }}\n",
            rules("daddr", to),
            rules("saddr", from)
        );
        let mut filter = Command::new("ip");
        filter.args(["netns", "exec", &self.name(), "nft", "-f", "-"]);
        filter
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = filter.spawn().map_err(|error| error.to_string())?;
        if let Some(mut stdin) = child.stdin.take() {
            let written = stdin.write_all(script.as_bytes());
            written.map_err(|error| error.to_string())?;
        }
        let done = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        answer("nft", done.status.success(), &done.stderr)
    }

    /// Delays the node's packets by this time or, if the system cannot delay packets, makes them
    /// slow; `None` restores the normal state.
    pub(super) fn delay_packets(&self, delay_ms: Option<u64>) -> Result<(), String> {
        let space = self.name();
        let tc = |action: &str, how: &[&str]| {
            let on = ["-n", &space, "qdisc", action, "dev", "node", "root"];
            run("tc", &[&on[..], how].concat())
        };
        match delay_ms {
            // There may be no rule to delete.
            None => tc("del", &[]).or(Ok(())),
            Some(delay_ms) => {
                let delay = format!("{delay_ms}ms");
                tc("replace", &["netem", "delay", &delay])
                    .or_else(|_| tc("replace", &[&["tbf"], &SLOW_RATE[..]].concat()))
            }
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // This may fail, but nothing else can be done here.
        let _ = run("ip", &["netns", "del", &self.name()]);
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The outside end disappears with its peer.
        let _ = run("ip", &["netns", "del", &self.name()]);
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(args).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    answer(program, done.status.success(), &done.stderr)
}

fn answer(program: &str, is_done: bool, said: &[u8]) -> Result<(), String> {
    if is_done {
        return Ok(());
    }
    Err(format!(
        "{program}: {}",
        String::from_utf8_lossy(said).trim()
    ))
}

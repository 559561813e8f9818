//! Resources of the nodes' processes, from `/proc`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use torc_client::NodeId;

use crate::cluster::PlainNode;

const EVERY: Duration = Duration::from_millis(50);

/// Samples memory until dropped.
pub(super) struct Watch {
    nodes: Vec<PlainNode>,
    started: Vec<Option<u64>>,
    memory: Arc<Mutex<BTreeMap<NodeId, Memory>>>,
    sampling: JoinHandle<()>,
}

/// Resident memory of a process, KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory {
    pub(super) rest: u64,
    pub(super) peak: u64,
    pub(super) last: u64,
}

impl Memory {
    pub(super) const fn grown(self) -> u64 {
        self.peak.saturating_sub(self.rest)
    }
}

impl Watch {
    /// Starts; the present memory counts as the memory at rest.
    pub(super) fn start(nodes: Vec<PlainNode>) -> Self {
        let memory = nodes.iter().map(|node| {
            let rest = resident_kib(node.pid).unwrap_or(0);
            let peak = rest;
            (
                node.id,
                Memory {
                    rest,
                    peak,
                    last: rest,
                },
            )
        });
        let memory = Arc::new(Mutex::new(memory.collect::<BTreeMap<_, _>>()));
        let sampling = tokio::spawn(sample(nodes.clone(), Arc::clone(&memory)));
        Self {
            started: nodes.iter().map(|node| start_time(node.pid)).collect(),
            nodes,
            memory,
            sampling,
        }
    }

    pub(super) fn memory(&self) -> BTreeMap<NodeId, Memory> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.clone()
    }

    /// Nodes whose process is no longer the original one.
    pub(super) fn restarted(&self) -> Vec<NodeId> {
        let nodes = self.nodes.iter().zip(&self.started);
        let other =
            nodes.filter(|(node, started)| started.is_none() || start_time(node.pid) != **started);
        other.map(|(node, _)| node.id).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.sampling.abort();
    }
}

async fn sample(nodes: Vec<PlainNode>, memory: Arc<Mutex<BTreeMap<NodeId, Memory>>>) {
    loop {
        for node in &nodes {
            let Some(now) = resident_kib(node.pid) else {
                continue;
            };
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(memory) = memory.get_mut(&node.id) {
                memory.peak = memory.peak.max(now);
                memory.last = now;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// When the process began, in ticks since the machine's start; `None` if it has exited.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may contain anything; the first field there is the third.
    let behind = stat.rsplit_once(')')?.1;
    let mut fields = behind.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_a_start() {
        let pid = std::process::id();
        assert!(resident_kib(pid) > Some(0));
        assert!(start_time(pid) > Some(0));
        assert_eq!(start_time(u32::MAX), None);
    }
}

//! Whether every member carries out writes.

use std::time::Duration;

use tokio::time::Instant;
use torc_sim::history::Kind;

use super::group::{Contact, Group};
use super::recorder::{Answer, Asker, Recorder};
use super::wire::{Ask, Wire};

/// How long every member may take to serve again once a fault is over.
const RECOVERY: Duration = Duration::from_secs(60);
/// Keys that each member must write.
const KEYS: u64 = 8;

/// Waits until each member has carried out a write of some keys; how long that took.
pub(super) async fn serves_again(group: &mut Group) -> Result<Duration, String> {
    let begun = Instant::now();
    let wire = Wire::new(group).map_err(|error| error.to_string())?;
    let probes = Recorder::default();
    for node in group.contacts.present() {
        for slot in 0..KEYS {
            while !is_served(&wire, &probes, node, slot).await {
                check_running(group)?;
                if begun.elapsed() > RECOVERY {
                    let (node, after) = (node.number, begun.elapsed());
                    return Err(format!("node {node} wrote nothing within {after:?}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    check_running(group)?;
    Ok(begun.elapsed())
}

/// No process has ended that nobody ended.
fn check_running(group: &mut Group) -> Result<(), String> {
    for process in &mut group.processes {
        if let Some(ended) = process.has_ended() {
            return Err(format!("node {} ended by itself: {ended}", process.number));
        }
    }
    Ok(())
}

async fn is_served(wire: &Wire, probes: &Recorder, node: Contact, slot: u64) -> bool {
    if wire.library().known_topology().is_none() && wire.library().topology().await.is_err() {
        return false;
    }
    let key = probes.key_of(slot);
    let mut begun = probes.begin(key, Asker::default(), Kind::Put);
    begun.name = format!("probe/{slot}");
    let ask = Ask {
        begun,
        version: None,
    };
    matches!(wire.ask_node(node.address, &ask).await, Answer::Written(_))
}

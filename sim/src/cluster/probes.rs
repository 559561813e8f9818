//! Checks that every member accepts writes, and that the library finds one that does.

use std::time::Duration;

use tokio::time::Instant;
use torc_sim::history::Kind;

use super::group::{Contact, Group};
use super::recorder::{Answer, Asker, Recorder};
use super::wire::{Ask, Wire};

/// Time limit for the cluster to serve again after a fault.
const RECOVERY: Duration = Duration::from_secs(60);
/// Keys that each member must write.
const KEYS: u64 = 8;

/// Waits until the library, and each member that must, has completed writes of some keys; returns
/// the time that took.
pub(super) async fn serves_again(group: &mut Group) -> Result<Duration, String> {
    let begun = Instant::now();
    let wire = Wire::new(group).map_err(|error| error.to_string())?;
    let probes = Recorder::default();
    let coordinators = group.coordinators().into_iter().map(Some);
    for node in coordinators.chain([None]) {
        for slot in 0..KEYS {
            while !is_served(&wire, &probes, node, slot).await {
                check_running(group)?;
                if begun.elapsed() > RECOVERY {
                    let after = begun.elapsed();
                    let who = node.map_or_else(
                        || "the library".to_owned(),
                        |node| format!("node {}", node.number),
                    );
                    return Err(format!("{who} did not write key {slot} within {after:?}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    check_running(group)?;
    Ok(begun.elapsed())
}

/// Checks that no process has exited without being killed.
fn check_running(group: &mut Group) -> Result<(), String> {
    let ended = group.ended();
    if ended.is_empty() {
        return Ok(());
    }
    Err(ended.join(", "))
}

/// Whether this node, or else any node that the library finds, writes the key.
async fn is_served(wire: &Wire, probes: &Recorder, node: Option<Contact>, slot: u64) -> bool {
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
    let answer = match node {
        Some(node) => wire.ask_node(node.address, &ask).await,
        None => wire.ask(&ask).await,
    };
    matches!(answer, Answer::Written(_))
}

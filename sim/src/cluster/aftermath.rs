//! Checks the healed cluster: reads every key at some nodes, compares a scan, waits until
//! replicas are equal, and writes every key.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;
use tonic::transport::Endpoint;
use torc_client::{Client, ScanOptions};
use torc_proto::Names;
use torc_proto::v1::SummarizeRequest;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_ring::Partition;
use torc_sim::history::{Kind, Value};

use super::group::{Contact, Group};
use super::recorder::{Answer, Asker, Recorder, ttl_of};
use super::report::Report;
use super::wire::{Ask, Wire, number};

/// Time limit for replicas to become equal.
const CONVERGENCE: Duration = Duration::from_secs(120);
/// Attempts to read a key.
const TRIES: usize = 20;
/// Attempts to write a key: few enough for the checkers' limit on a history.
const WRITES: usize = 8;
const KEYS_AT_A_TIME: usize = 32;

/// Runs all checks, and notes the problems.
pub(super) async fn inspect(group: &Group, recorder: &Recorder, report: &mut Report) {
    let Ok(wire) = Wire::new(group) else {
        return;
    };
    if let Err(error) = wire.library().topology().await {
        return report.note_trouble(format!("no topology at the end: {error}"));
    }
    let values = read_all(group, &wire, recorder, report).await;
    compare_with_scan(wire.library(), &values, report).await;
    write_all(&wire, recorder, report).await;
    let begun = Instant::now();
    match converge(group, wire.library()).await {
        Ok(()) => report.note_convergence(begun.elapsed()),
        Err(difference) => report.note_trouble(difference),
    }
}

/// Reads each key at two nodes; returns the values that the second one found.
async fn read_all(
    group: &Group,
    wire: &Wire,
    recorder: &Recorder,
    report: &mut Report,
) -> HashMap<String, Value> {
    let names = recorder.names();
    let nodes = group.coordinators();
    let nodes = &nodes[..];
    let reads = names.into_iter().enumerate().map(|(key, name)| async move {
        let mut found = None;
        for node in [key, key + 1] {
            found = read(wire, recorder, key, nodes[node % nodes.len()]).await;
        }
        (name, found)
    });
    let reads = futures::stream::iter(reads).buffer_unordered(KEYS_AT_A_TIME);
    let all: Vec<_> = reads.collect().await;
    let unread = all.iter().filter(|(_, found)| found.is_none()).count();
    if unread > 0 {
        report.note_trouble(format!(
            "{unread} keys of the healed cluster cannot be read"
        ));
    }
    let found = |(name, found): (String, Option<Value>)| Some((name, found?));
    all.into_iter().filter_map(found).collect()
}

async fn read(wire: &Wire, recorder: &Recorder, key: usize, node: Contact) -> Option<Value> {
    for _ in 0..TRIES {
        let by = Asker {
            client: None,
            node: Some(node.number),
        };
        let begun = recorder.begin(key, by, |_| Kind::Get);
        let ticket = begun.ticket;
        let ask = Ask {
            begun,
            version: None,
        };
        let answer = wire.ask_node(node.address, &ask).await;
        recorder.end(ticket, answer);
        match answer {
            Answer::Found(value, _) => return Some(value),
            Answer::Absent => return Some(0),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    None
}

/// Writes each key through the library: after no fault may a key stay unwritable.
async fn write_all(wire: &Wire, recorder: &Recorder, report: &mut Report) {
    let names = recorder.names();
    let writes = (0..names.len()).map(|key| write(wire, recorder, key));
    let writes = futures::stream::iter(writes).buffer_unordered(KEYS_AT_A_TIME);
    let unwritten = writes.filter(|is_written| std::future::ready(!is_written));
    let unwritten = unwritten.count().await;
    if unwritten > 0 {
        let keys = names.len();
        report.note_trouble(format!(
            "{unwritten} of {keys} keys of the healed cluster cannot be written"
        ));
    }
}

async fn write(wire: &Wire, recorder: &Recorder, key: usize) -> bool {
    for _ in 0..WRITES {
        let begun = recorder.begin(key, Asker::default(), Kind::Put);
        let ticket = begun.ticket;
        let ask = Ask {
            begun,
            version: None,
        };
        let answer = wire.ask(&ask).await;
        recorder.end(ticket, answer);
        if matches!(answer, Answer::Written(_)) {
            return true;
        }
    }
    false
}

/// Without running writes, a scan must find exactly what gets have found.
async fn compare_with_scan(client: &Client, values: &HashMap<String, Value>, report: &mut Report) {
    let mut scan = client.scan(ScanOptions::default());
    let mut missing: BTreeMap<_, _> = values.iter().filter(|(_, value)| **value != 0).collect();
    // They may expire before the scan reaches them.
    let mut mortal = missing.clone();
    missing.retain(|_, value| ttl_of(**value).is_none());
    mortal.retain(|_, value| ttl_of(**value).is_some());
    let mut wrong = 0_u64;
    while let Some(entry) = scan.next().await {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return report.note_trouble(format!("the last scan failed: {error}")),
        };
        let name = String::from_utf8_lossy(&entry.key).into_owned();
        if name.starts_with("probe/") {
            continue;
        }
        let expected = missing.remove(&name).or_else(|| mortal.remove(&name));
        let expected = expected.copied();
        wrong += u64::from(expected != Some(number(&entry.value)));
    }
    if wrong > 0 || !missing.is_empty() {
        let missing: Vec<_> = missing.keys().take(5).collect();
        report.note_trouble(format!(
            "the last scan shows {wrong} keys that gets do not, and misses others: {missing:?}"
        ));
    }
}

/// Waits until all replicas of each partition hold the same versions.
async fn converge(group: &Group, client: &Client) -> Result<(), String> {
    let until = Instant::now() + CONVERGENCE;
    loop {
        let difference = match differing(group, client).await {
            Ok(0) => return Ok(()),
            Ok(partitions) => format!("{partitions} partitions"),
            Err(error) => error,
        };
        if Instant::now() > until {
            return Err(format!(
                "replicas still differ {CONVERGENCE:?} after the last fault: {difference}"
            ));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn differing(group: &Group, client: &Client) -> Result<usize, String> {
    let table = client.known_topology().ok_or("no topology")?;
    let mut held = BTreeMap::new();
    for process in &group.processes {
        let Some(id) = process.id else {
            continue;
        };
        let uri = format!("http://{}", process.kvd.peer);
        let channel = Endpoint::from_shared(uri).map_err(|error| error.to_string())?;
        let names = Names::of_node(table.cluster, id);
        let mut replica = ReplicaClient::with_interceptor(channel.connect_lazy(), names);
        let partitions = table
            .partitions
            .iter()
            .map(|partition| partition.0)
            .collect();
        let answer = replica.summarize(SummarizeRequest { partitions }).await;
        let answer = answer.map_err(|status| status.to_string())?.into_inner();
        for summary in answer.summaries {
            held.insert(
                (summary.partition, id),
                (summary.records, summary.fingerprint),
            );
        }
    }
    if held.values().all(|(records, _)| *records == 0) {
        return Err("no replica tells of any record".to_owned());
    }
    let differs = |partition: &u32| {
        let Some(state) = table.state(Partition(*partition)) else {
            return false;
        };
        let mut copies = state
            .nodes
            .iter()
            .map(|node| held.get(&(*partition, *node)));
        let first = copies.next();
        copies.any(|copy| Some(copy) != first)
    };
    let partitions = table.states.iter().map(|state| state.config.partition.0);
    Ok(partitions.filter(differs).count())
}

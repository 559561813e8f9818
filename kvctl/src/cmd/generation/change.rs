//! Attaches and promotes generations in a cluster.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::{Duration, Instant};

use torc_build::{Manifest, Shape, Target};
use torc_client::{
    Client, Generation, GenerationContent, GenerationShape, GenerationState, NodeId, NodeStatus,
    Reservation,
};

use super::{failure, hex};
use crate::failure::Failure;
use crate::files;
use crate::global::Global;
use crate::input;
use crate::out::{Out, note};
use crate::table::{Align, Table};
use crate::text;

/// How often to ask which nodes hold a generation.
const LOOK: Duration = Duration::from_millis(200);
/// How long to ask if no node answers.
const LONGEST_SILENCE: Duration = Duration::from_secs(120);
/// While it waits, an attachment asks every five seconds, which are so many looks, why nodes lack slices.
const LOOKS_PER_QUESTION: u32 = 25;

/// The build target of a reserved generation.
pub(crate) fn target_of(reserved: &Reservation) -> Target {
    Target {
        namespace: reserved.generation.id,
        digest_key: reserved.digest_key.0,
        partitions: reserved.partitions,
        ballot: reserved.generation.version,
    }
}

pub(super) async fn reserve_merge(
    namespace: &str,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let client = global.client()?;
    let reserved = client.reserve_merge(namespace).await?;
    let merge = heard(&client, reserved).await?;
    if global.json() {
        return out.json(&merge);
    }
    let number = merge.number;
    out.line(format!(
        "reserved merge {number} into `{namespace}`: every write from now on wins over its rows. Load \
         them with `kvctl load FILE --merge {number}`"
    ))
}

/// An open merge that every node knows of.
pub(crate) async fn open_merge(client: &Client, number: u32) -> Result<Generation, Failure> {
    let merge = find(client, number).await?;
    if merge.state == GenerationState::Merging {
        return heard(client, merge).await;
    }
    Err(Failure::Usage(format!(
        "{number} is a generation of `{}`, not a merge: see `kvctl generation list`",
        merge.namespace
    )))
}

pub(super) async fn reserve(
    namespace: &str,
    to: &Path,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    // The file holds the digest key. It is created first: a reservation that is lost stays reserved.
    let mut file = files::create(to, 0o600)?;
    let reserved = match global.client()?.reserve_generation(namespace).await {
        Ok(reserved) => reserved,
        Err(error) => {
            // It is empty.
            let _ = std::fs::remove_file(to);
            return Err(error.into());
        }
    };
    let text = serde_json::to_vec_pretty(&target_of(&reserved)).map_err(std::io::Error::from);
    let written = text.and_then(|text| files::write(&mut file, &text));
    written.map_err(|source| {
        let number = reserved.generation.number;
        Failure::file("write", to, source).after(format!(
            "drop the reservation with `kvctl generation drop {number}`"
        ))
    })?;
    show(&reserved.generation, global, out)
}

/// The URL of the manifest in a directory.
pub(crate) fn url_of(dir: &Path) -> Result<String, Failure> {
    let found = dir.canonicalize();
    let dir = found.map_err(|source| Failure::file("find", dir, source))?;
    let name = Manifest::name_in(&dir).map_err(failure)?;
    Ok(torc_objects::url_of(&dir.join(name))?)
}

/// Fails if a generation was rolled back: a repeated build is no reason to return to it.
pub(crate) async fn is_not_rolled_back(
    client: &Client,
    manifest: &Manifest,
) -> Result<(), Failure> {
    let Generation { number, state, .. } = find(client, manifest.target.namespace.number()).await?;
    if state != GenerationState::RolledBack {
        return Ok(());
    }
    Err(Failure::OutOfBounds(format!(
        "generation {number} was rolled back. To return to it, use `kvctl generation attach` and \
         `kvctl generation promote {number}`"
    )))
}

/// Attaches a generation, and waits until every node holds its share. One that was promoted before,
/// as by a repeated command, stays as it is.
pub(crate) async fn attach(
    client: &Client,
    manifest: &Manifest,
    source: String,
) -> Result<Generation, Failure> {
    let id = manifest.target.namespace;
    if manifest.target.is_offline() {
        return Err(Failure::Usage(format!(
            "{source} was built without a cluster: build again with `--into NAMESPACE`"
        )));
    }
    let before = find(client, id.number()).await?;
    match before.state {
        GenerationState::Current
            if torc_build::source_of(&before.source).0 == torc_build::source_of(&source).0
                && before.manifest == hex(&manifest.digest()) =>
        {
            return Ok(before);
        }
        GenerationState::Previous => {
            let (number, namespace) = (before.number, before.namespace);
            return Err(Failure::OutOfBounds(format!(
                "a newer generation has replaced generation {number}. Nothing was changed: return to it with \
                 `kvctl generation rollback {namespace}`"
            )));
        }
        _ => {}
    }
    let content = GenerationContent {
        manifest: manifest.digest(),
        source,
        records: manifest.records,
        payload_bytes: manifest.payload_bytes,
        partitions: manifest
            .slices()
            .map(|slice| (slice.partition, slice.records))
            .collect(),
        shape: match manifest.shape {
            Shape::Values => GenerationShape::Values,
            Shape::Keyless {
                fingerprint_bits,
                payload_bytes,
            } => GenerationShape::Keyless {
                fingerprint_bits,
                payload_bytes,
            },
            Shape::Ids => GenerationShape::Ids,
        },
    };
    let mut attached = client.attach_generation(id.number(), &content).await?;
    let bar = input::spinner();
    let (mut looks, mut told) = (0_u32, Vec::new());
    while !attached.not_ready.is_empty() {
        looks += 1;
        if looks.is_multiple_of(LOOKS_PER_QUESTION) {
            let problems = problems(client).await;
            for problem in problems
                .iter()
                .filter(|it| it.generation == attached.number)
            {
                if !told.contains(problem) {
                    note(format_args!("{problem}; it retries"));
                    told.push(problem.clone());
                }
            }
        }
        bar.set_message(format!("waiting for {}", text::nodes(&attached.not_ready)));
        bar.tick();
        attached = look_again(client, &attached).await?;
    }
    bar.finish_and_clear();
    Ok(attached)
}

/// Why a node lacks slices of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    node: NodeId,
    generation: u32,
    why: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            node,
            generation,
            why,
        } = self;
        write!(
            f,
            "node {node} lacks slices of generation {generation}: {why}"
        )
    }
}

/// Why nodes lack slices of generations, as far as they tell it.
async fn problems(client: &Client) -> Vec<Problem> {
    // It only explains what the caller says anyway.
    let nodes = client
        .status()
        .await
        .map_or_else(|_| Vec::new(), |it| it.nodes);
    let of_node = |it: NodeStatus| {
        let node = it.member.id;
        let missing = it.missing_slices.into_iter();
        missing.map(move |it| Problem {
            node,
            generation: it.generation,
            why: it.problem,
        })
    };
    nodes.into_iter().flat_map(of_node).collect()
}

/// Promotes a generation, and waits until no node answers from an older one. One that creates its namespace is
/// then dropped from the list: it is done.
pub(crate) async fn promote(
    client: &Client,
    number: u32,
    force: bool,
) -> Result<Generation, Failure> {
    let promoted = heard(client, client.promote(number, force).await?).await?;
    if promoted.creates {
        client.drop_generation(number).await?;
    }
    Ok(promoted)
}

pub(super) async fn roll_back(
    namespace: &str,
    force: bool,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let client = global.client()?;
    let current = client.roll_back(namespace, force).await?;
    show(&heard(&client, current).await?, global, out)
}

async fn heard(client: &Client, mut current: Generation) -> Result<Generation, Failure> {
    let mut named = Vec::new();
    while !current.unconfirmed.is_empty() {
        if current.unconfirmed != named {
            let (number, nodes) = (current.number, text::nodes(&current.unconfirmed));
            if current.state == GenerationState::Merging {
                note(format_args!(
                    "waiting for {nodes}, which may not know of merge {number}: start them, or \
                     remove those that are lost for good"
                ));
            } else if current.creates {
                note(format_args!(
                    "`{}` is created; waiting for {nodes}, which may not know of it (`--force` does not wait)",
                    current.namespace
                ));
            } else {
                note(format_args!(
                    "generation {number} is current; waiting for {nodes}, which may still answer \
                     from the previous one (`--force` does not wait)"
                ));
            }
            named.clone_from(&current.unconfirmed);
        }
        current = look_again(client, &current).await?;
    }
    Ok(current)
}

/// Looks at a generation that was changed. The change is made, so it asks until a node answers.
async fn look_again(client: &Client, changed: &Generation) -> Result<Generation, Failure> {
    let began = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        match find(client, changed.number).await {
            Err(Failure::Cluster(error))
                if error.is_retryable() && began.elapsed() < LONGEST_SILENCE => {}
            found => {
                return found.map_err(|failure| {
                    failure.after(format!(
                        "{} is {}: repeat the command to wait",
                        changed.number,
                        state(changed.state)
                    ))
                });
            }
        }
    }
}

async fn find(client: &Client, number: u32) -> Result<Generation, Failure> {
    let all = client.generations(None).await?;
    let found = all.into_iter().find(|it| it.number == number);
    found.ok_or_else(|| {
        Failure::Usage(format!(
            "there is no generation or merge {number}, or it was dropped: see `kvctl generation list`"
        ))
    })
}

pub(super) fn show(generation: &Generation, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if global.json() {
        return out.json(generation);
    }
    let Generation {
        number, namespace, ..
    } = generation;
    let state = state(generation.state);
    out.line(format!(
        "generation {number} of `{namespace}`, {state}: {} ({})",
        text::counted(generation.records, "key"),
        text::bytes(generation.payload_bytes),
    ))
}

pub(super) async fn list(
    namespace: Option<&str>,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let client = global.client()?;
    let all = client.generations(namespace).await?;
    if global.json() {
        return all.iter().try_for_each(|each| out.json(each));
    }
    let mut table = Table::new(&[
        ("number", Align::Right),
        ("namespace", Align::Left),
        ("state", Align::Left),
        ("shape", Align::Left),
        ("keys", Align::Right),
        ("bytes", Align::Right),
        ("waiting for", Align::Left),
    ]);
    for each in &all {
        let waiting = [&each.not_ready[..], &each.unconfirmed].concat();
        table.row([
            each.number.to_string(),
            each.namespace.clone(),
            state(each.state).to_owned(),
            each.shape.map(shape).unwrap_or_default(),
            text::count(each.records),
            text::bytes(each.payload_bytes),
            if waiting.is_empty() {
                String::new()
            } else {
                text::nodes(&waiting)
            },
        ]);
    }
    out.line(table)?;
    if all.iter().all(|each| each.not_ready.is_empty()) {
        return Ok(());
    }
    let mut problems = problems(&client).await;
    problems.retain(|it| all.iter().any(|each| each.number == it.generation));
    problems.iter().try_for_each(|problem| out.line(problem))
}

pub(crate) const fn state(state: GenerationState) -> &'static str {
    match state {
        GenerationState::Reserved => "reserved",
        GenerationState::Attached => "attached",
        GenerationState::Current => "current",
        GenerationState::Previous => "previous",
        GenerationState::RolledBack => "rolled back",
        GenerationState::Merging => "merging",
    }
}

fn shape(shape: GenerationShape) -> String {
    let rate = shape.false_positive_rate();
    match shape {
        GenerationShape::Values => "values".to_owned(),
        GenerationShape::Keyless {
            payload_bytes: 0, ..
        } => format!("set, false positives {rate:.1e}"),
        GenerationShape::Keyless { payload_bytes, .. } => {
            let payload = text::bytes(payload_bytes.into());
            format!("keyless with {payload}, false positives {rate:.1e}")
        }
        GenerationShape::Ids => "ids".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_client::{Epoch, NodeSlot, Version};
    use torc_record::{HybridTime, NamespaceId};

    #[test]
    fn the_url_of_a_directory_names_its_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("my gen.json");
        std::fs::create_dir(&built).unwrap();
        let url = url_of(&built).unwrap();
        let (location, name) = torc_build::source_of(&url);
        assert!(location.ends_with("/my%20gen.json"), "{url}");
        assert_eq!(name, "generation.json");
        let sent = "generation-000001-aa.json";
        std::fs::write(built.join(sent), "").unwrap();
        assert!(url_of(&built).unwrap().ends_with(sent));
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Generation {
            number: 1,
            namespace: "pages".into(),
            id: NamespaceId(1),
            version: Version {
                epoch: Epoch(1),
                time: HybridTime(0),
                slot: NodeSlot(0),
            },
            state: GenerationState::RolledBack,
            creates: false,
            shape: Some(GenerationShape::Keyless {
                fingerprint_bits: 16,
                payload_bytes: 0,
            }),
            false_positive_rate: 1.5e-5,
            manifest: String::new(),
            source: String::new(),
            records: 0,
            payload_bytes: 0,
            not_ready: vec![torc_client::NodeId(1)],
            unconfirmed: Vec::new(),
        });
    }
}

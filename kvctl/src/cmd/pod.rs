//! `kvctl pod`: runs a node in a pod of a Kubernetes StatefulSet. Scaling the StatefulSet scales
//! the cluster.
//!
//! Kubernetes tells a pod to stop, but not why. So a stopping pod asks Kubernetes for the number of
//! replicas. If the pod's own number is beyond it, the node leaves the cluster first. Otherwise,
//! and if there is no answer, it is a restart: the node keeps its data and its place
//! ([decision](../../../docs/decisions/kubernetes.md)).
//!
//! Absent on purpose: `kvd` itself knows nothing of Kubernetes.

mod api;
mod data;
mod membership;

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::global::Global;
use crate::out::note;
use api::Api;
use data::DataDir;
use membership::{Membership, Place};

/// Time that a node has to finish requests, sync and close its files.
const STOP_TIME: Duration = Duration::from_secs(60);
/// Attempts to reach Kubernetes before the pod continues without an answer.
const ASK_TIMES: u32 = 5;
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Run a node in a pod of a Kubernetes StatefulSet.
///
/// The first pods found the cluster together; later pods join it by themselves. When the
/// StatefulSet is scaled down, a pod moves its data to the others before its node stops. A pod that
/// restarts, or is evicted or deleted, keeps its data and its place. The pod's service account
/// needs the right to get `statefulsets/scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the pod: the StatefulSet's name, a hyphen and the pod's number.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod: PodName,
    /// Kubernetes namespace of the pod.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pod_namespace: String,
    /// gRPC address of a pod as other nodes reach it: host:port with {} for the pod's number.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    peers: String,
    /// Number of pods, from the first, that found the cluster.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    founders: u32,
    /// Data directory of the node. If the node has left the cluster, it is emptied when the pod
    /// starts again.
    #[arg(long, env = "TORC_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// Failure domain of the node, for example the pod's label topology.kubernetes.io/zone.
    #[arg(long, env = "POD_ZONE", value_name = "ZONE", default_value = "")]
    zone: String,
    /// Name of the machine that the pod runs on. Without --zone, its label
    /// topology.kubernetes.io/zone is the zone; the service account then needs the right to get
    /// nodes.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    machine: Option<String>,
    /// Directory with the service account's token and authority.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    service_account: PathBuf,
    /// Command that runs the node.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// `torc-2`: the StatefulSet `torc` and the number 2.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodName {
    set: String,
    number: u32,
}

impl std::str::FromStr for PodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('-');
        let parts = parts.and_then(|(set, number)| Some((set, number.parse().ok()?)));
        let (set, number) = parts
            .filter(|(set, _)| is_plain(set))
            .ok_or("use a StatefulSet's name, a hyphen and a number")?;
        let set = set.to_owned();
        Ok(Self { set, number })
    }
}

/// Whether the name has only characters that Kubernetes allows, which are safe in a path.
fn is_plain(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    !name.is_empty() && name.chars().all(allowed)
}

fn pattern(text: &str) -> Result<String, String> {
    let is_one = text.matches("{}").count() == 1;
    let is_one = is_one.then(|| text.to_owned());
    is_one.ok_or_else(|| "use host:port with one {}".to_owned())
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let mut terminated = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
    let api = Api::new(&args.service_account);
    let data = DataDir::new(&args.data_dir);
    data.empty_if_left()?;
    let membership = Membership::new(global, &args.peers, args.pod.number, args.founders);
    let mut node = start(&args, &api, &data, &membership).await?;

    let place = tokio::select! {
        ended = node.wait() => return how_it_ended(ended),
        _ = terminated.recv() => None,
        place = async {
            let place = membership.join(data.is_leaving()).await;
            if place == Place::Member {
                if let Err(failure) = data.unmark() {
                    note(failure.line());
                }
                std::future::pending::<()>().await;
            }
            place
        } => Some(place),
    };
    let leaves = place == Some(Place::Leaving) || is_scaled_down(&args, &api).await;
    let mut marked = Ok(());
    if leaves {
        marked = data.mark_as_leaving();
    }
    if leaves && marked.is_ok() {
        tokio::select! {
            ended = node.wait() => return how_it_ended(ended),
            // The user does not want to wait any longer.
            _ = terminated.recv() => note("stopped before the node had left: it keeps its data and continues leaving when it starts again"),
            left = membership.leave() => match left {
                Ok(()) => marked = data.mark_as_left(),
                Err(refused) => {
                    note(format_args!("{refused}; the node stops and keeps its data and its place"));
                    marked = data.unmark();
                }
            },
        }
    }
    // Also if the disk is full: a node that is killed takes longer to start again.
    stop(&mut node).await?;
    marked
}

/// Starts the node, as a founder if it should be one.
async fn start(
    args: &Args,
    api: &Api,
    data: &DataDir,
    membership: &Membership<'_>,
) -> Result<Child, Failure> {
    let (program, flags) = args.command.split_first().ok_or_else(|| {
        Failure::Usage("name the command that runs the node: -- kvd serve".to_owned())
    })?;
    let mut command = Command::new(program);
    command.args(flags).stdin(Stdio::null()).kill_on_drop(true);
    command.env("TORC_ADVERTISE_ADDR", membership.own());
    // The variable is for `kvctl` itself.
    command.env_remove("TORC_ENDPOINTS");
    if may_found(args, api, data).await? {
        command.env("TORC_BOOTSTRAP", "true");
        let others: Vec<_> = (1..args.founders)
            .map(|it| membership.address(it))
            .collect();
        if !others.is_empty() {
            command.env("TORC_FOUND_WITH", others.join(","));
        }
    }
    if let Some(zone) = zone(args, api, data).await? {
        command.env("TORC_ZONE", zone);
    }
    command.spawn().map_err(|source| Failure::File {
        action: "run",
        path: program.clone(),
        source,
    })
}

/// Whether the node may found a cluster. Founding again changes nothing, and several founders
/// refuse it. But a single founder that lost its volume would found a second cluster, so it founds
/// one only while it is alone.
async fn may_found(args: &Args, api: &Api, data: &DataDir) -> Result<bool, Failure> {
    if args.pod.number > 0 {
        return Ok(false);
    }
    if args.founders > 1 || !data.is_new() {
        return Ok(true);
    }
    Ok(patiently(|| replicas(args, api)).await? <= 1)
}

async fn zone(args: &Args, api: &Api, data: &DataDir) -> Result<Option<String>, Failure> {
    if !args.zone.is_empty() {
        return Ok(Some(args.zone.clone()));
    }
    let Some(machine) = args.machine.as_deref().filter(|it| is_plain(it)) else {
        return Ok(None);
    };
    let path = format!("/api/v1/nodes/{machine}");
    match patiently(|| api.get(&path)).await {
        Ok(node) => {
            let zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str();
            Ok(zone.map(str::to_owned))
        }
        // The cluster already knows the zone of a member.
        Err(error) if !data.is_new() => {
            note(format_args!("cannot read the zone: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn replicas(args: &Args, api: &Api) -> Result<u64, api::ApiError> {
    let PodName { set, .. } = &args.pod;
    let namespace = &args.pod_namespace;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{set}/scale");
    let scale = api.get(&path).await?;
    let replicas = &scale["spec"]["replicas"];
    // Kubernetes omits a 0.
    if scale["kind"] == "Scale" && replicas.is_null() {
        return Ok(0);
    }
    let none = || api::ApiError::Malformed { path };
    replicas.as_u64().ok_or_else(none)
}

/// Whether the StatefulSet is scaled down below this pod's number. Scaling to zero is a pause.
async fn is_scaled_down(args: &Args, api: &Api) -> bool {
    match patiently(|| replicas(args, api)).await {
        Ok(replicas) if replicas > 0 && replicas <= args.pod.number.into() => {
            note(format_args!(
                "scaled down to {replicas}: the node leaves the cluster before it stops"
            ));
            true
        }
        Ok(_) => false,
        Err(error) => {
            note(format_args!(
                "cannot tell whether the StatefulSet is scaled down: {error}; the node stops and keeps its data and its place"
            ));
            false
        }
    }
}

async fn patiently<T>(
    mut ask: impl AsyncFnMut() -> Result<T, api::ApiError>,
) -> Result<T, api::ApiError> {
    let mut asked = 1;
    loop {
        match ask().await {
            Err(error) if asked < ASK_TIMES && error.may_pass() => asked += 1,
            answer => return answer,
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Sends SIGTERM, later SIGKILL.
async fn stop(node: &mut Child) -> Result<(), Failure> {
    let id = node.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(id) = id {
        // The process may have just exited.
        let _ = kill_process(id, Signal::TERM);
    }
    if let Ok(ended) = tokio::time::timeout(STOP_TIME, node.wait()).await {
        return how_it_ended(ended);
    }
    note("the node did not stop in time: killing it");
    node.kill().await.map_err(Failure::Runtime)
}

fn how_it_ended(ended: std::io::Result<ExitStatus>) -> Result<(), Failure> {
    let status = ended.map_err(Failure::Runtime)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::NodeEnded(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_ends_with_its_number() {
        let name = |text: &str| text.parse::<PodName>();
        let set = "my-torc".to_owned();
        assert_eq!(name("my-torc-12"), Ok(PodName { set, number: 12 }));
        for wrong in ["torc", "torc-", "-1", "torc-x", "a/b-1", "torc-4294967296"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_has_one_place_for_the_number() {
        assert!(pattern("torc-{}.torc:7400").is_ok());
        assert!(pattern("torc-0.torc:7400").is_err());
        assert!(pattern("torc-{}.torc-{}:7400").is_err());
    }
}

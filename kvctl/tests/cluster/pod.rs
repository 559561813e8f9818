//! `kvctl pod` with real nodes. Only the two requested objects of Kubernetes are simulated.

use std::convert::Infallible;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use torc_client::{Client, ClientTls, ClusterStatus, MemberState};
use torc_tls::{Authority, Identity};

use crate::processes::{TIMEOUT, free_address, kvctl, kvctl_path, kvd_path, until};
use crate::traffic::Traffic;

const TOKEN: &str = "the-pods-own-token";

/// The API server: the desired number of pods, and the machines' zones.
struct Kubernetes {
    replicas: Arc<AtomicU32>,
    port: u16,
    account: PathBuf,
    serving: tokio::task::JoinHandle<()>,
}

impl Kubernetes {
    async fn start(dir: &Path) -> Self {
        let authority = Authority::new().unwrap();
        let nobody = Identity::Node {
            cluster: None,
            node: None,
        };
        let issued = authority.issue(&nobody, &["127.0.0.1".to_owned()], 1);
        let issued = issued.unwrap();
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
        let chain = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];

        let account = dir.join("account");
        fs::create_dir_all(&account).unwrap();
        fs::write(account.join("ca.crt"), authority.certificate()).unwrap();
        fs::write(account.join("token"), TOKEN).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let replicas = Arc::new(AtomicU32::new(3));
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let asked_for = Arc::clone(&replicas);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let asked_for = Arc::clone(&asked_for);
                let service = service_fn(move |request: hyper::Request<_>| {
                    let answer = answer(&request, asked_for.load(Ordering::SeqCst));
                    std::future::ready(Ok::<_, Infallible>(answer))
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            replicas,
            port,
            account,
            serving,
        }
    }

    fn scale(&self, replicas: u32) {
        self.replicas.store(replicas, Ordering::SeqCst);
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The answer of Kubernetes to the pod's service account, which may read these two objects.
fn answer(
    request: &hyper::Request<hyper::body::Incoming>,
    replicas: u32,
) -> hyper::Response<Full<bytes::Bytes>> {
    let may = request.headers().get("authorization").is_some_and(|it| {
        it.to_str()
            .is_ok_and(|it| it.strip_prefix("Bearer ") == Some(TOKEN))
    });
    let path = request.uri().path();
    let body = if path == "/apis/apps/v1/namespaces/shop/statefulsets/torc/scale" {
        serde_json::json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": replicas}})
    } else if let Some(machine) = path.strip_prefix("/api/v1/nodes/machine-") {
        let labels = serde_json::json!({"topology.kubernetes.io/zone": format!("zone-{machine}")});
        serde_json::json!({"kind": "Node", "metadata": {"labels": labels}})
    } else {
        serde_json::Value::Null
    };
    let status = if may && !body.is_null() { 200 } else { 403 };
    let body = Full::new(body.to_string().into());
    let answer = hyper::Response::builder().status(status);
    answer.body(body).unwrap()
}

/// The pods of a StatefulSet, each with its volume. Dropping them kills them.
struct Pods {
    kubernetes: Kubernetes,
    port: u16,
    peer_port: u16,
    running: Vec<Option<Child>>,
    dir: tempfile::TempDir,
}

impl Pods {
    /// Three pods that found a secure cluster.
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubernetes = Kubernetes::start(dir.path()).await;
        let ca = dir.path().join("ca").display().to_string();
        let made = kvctl(&["127.0.0.1:7400".to_owned()], &["ca", "create", &ca]);
        assert!(made.status.success());
        let mut pods = Self {
            kubernetes,
            port: free_address().port(),
            peer_port: free_address().port(),
            running: Vec::new(),
            dir,
        };
        for number in 0..3 {
            pods.run(number);
        }
        until("three founded a cluster", async || {
            pods.members().await.len() == 3
        })
        .await;
        pods
    }

    fn address(&self, number: usize) -> String {
        format!("127.0.0.1{number}:{}", self.port)
    }

    fn data(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("volume-{number}"))
    }

    fn log(&self, number: usize) -> String {
        let log = self.dir.path().join(format!("log-{number}"));
        fs::read_to_string(log).unwrap_or_default()
    }

    fn tls_file(&self, number: usize, name: &str) -> PathBuf {
        self.data(number).join("tls").join(name)
    }

    /// As in the chart.
    fn run(&mut self, number: usize) {
        let log = self.dir.path().join(format!("log-{number}"));
        let log = File::options().create(true).append(true).open(log);
        let log = log.unwrap();
        let child = Command::new(kvctl_path())
            .arg("pod")
            .arg(format!("--peers=127.0.0.1{{}}:{}", self.port))
            .arg("--service-account")
            .arg(&self.kubernetes.account)
            .arg("--")
            .arg(kvd_path())
            .args(["serve", "--grpc-addr", &self.address(number)])
            .args([
                "--peer-addr",
                &format!("127.0.0.1{number}:{}", self.peer_port),
            ])
            .args(["--http-addr", &format!("127.0.0.1{number}:0")])
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", self.kubernetes.port.to_string())
            .env("POD_NAME", format!("torc-{number}"))
            .env("POD_NAMESPACE", "shop")
            .env("NODE_NAME", format!("machine-{number}"))
            // As in the image.
            .env("TORC_ENDPOINTS", "127.0.0.1:7400")
            .env("TORC_DATA_DIR", self.data(number))
            .env("TORC_PARTITIONS", "64")
            .env("TORC_SECURE", "true")
            .env("TORC_AUTHORITY", self.dir.path().join("ca"))
            .env("TORC_TLS_CA", self.tls_file(number, "ca.pem"))
            .env("TORC_TLS_CERT", self.tls_file(number, "node.pem"))
            .env("TORC_TLS_KEY", self.tls_file(number, "node-key.pem"))
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            // Stands for the container: all its processes end together.
            .process_group(0)
            .spawn()
            .unwrap();
        let pods = self.running.len().max(number + 1);
        self.running.resize_with(pods, || None);
        self.running[number] = Some(child);
    }

    /// Sends SIGTERM to `kvctl`, like the kubelet.
    fn ask_to_stop(&self, number: usize) {
        let id = self.running[number].as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(sent.success());
    }

    async fn has_stopped(&mut self, number: usize) {
        let mut child = self.running[number].take().unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait().unwrap());
        let ended = ended.await.unwrap();
        assert!(ended.success(), "{ended}\n{}", self.log(number));
    }

    /// Kills `kvctl` and the node.
    fn kill_9(&mut self, number: usize) {
        if let Some(mut child) = self.running[number].take() {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            // The node is no child of this process: it has ended once its ports are free.
            let deadline = Instant::now() + TIMEOUT;
            let is_free =
                |port| std::net::TcpListener::bind(format!("127.0.0.1{number}:{port}")).is_ok();
            while !(is_free(self.port) && is_free(self.peer_port)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Waits until the fourth pod, which was node `former`, is a member under another id. Kubernetes
    /// restarts a container that has exited.
    async fn joins_again(&mut self, former: u64) {
        let (mut joined, begun) = (Vec::new(), Instant::now());
        let mut is_told = false;
        until("it is a member again, under another id", async || {
            if begun.elapsed() > TIMEOUT / 2 && !std::mem::replace(&mut is_told, true) {
                let status = self.status().await;
                eprintln!("slow: {status:?}\n{}", self.log(3));
            }
            let ended = match self.running[3].as_mut() {
                Some(child) => child.try_wait().unwrap().is_some(),
                None => true,
            };
            if ended {
                self.run(3);
            }
            joined = self.members().await;
            joined.len() == 4 && joined[3].0 != former
        })
        .await;
        assert_eq!(joined[3].1, self.address(3));
    }

    /// A client with the founders as endpoints, like the first pod.
    fn client(&self) -> Result<Client, String> {
        let own = (
            self.tls_file(0, "node.pem"),
            self.tls_file(0, "node-key.pem"),
        );
        let ca = self.tls_file(0, "ca.pem");
        let tls = ClientTls::open(&ca, Some((&own.0, &own.1))).map_err(|it| it.to_string())?;
        let addresses: Vec<_> = (0..3).map(|number| self.address(number)).collect();
        let builder = Client::builder().endpoints(addresses).tls(tls);
        let builder = builder.deadline(Duration::from_secs(60));
        builder.connect_lazy().map_err(|it| it.to_string())
    }

    async fn status(&self) -> Option<ClusterStatus> {
        self.client().ok()?.status().await.ok()
    }

    /// Id, address and zone of every ready member, once nothing moves.
    async fn members(&self) -> Vec<(u64, String, String)> {
        let Some(status) = self.status().await else {
            return Vec::new();
        };
        let settled =
            |it: &torc_client::NodeStatus| it.ready && it.member.state == MemberState::Active;
        if status.transition.is_some() || !status.nodes.iter().all(settled) {
            return Vec::new();
        }
        let members = status.nodes.into_iter().map(|it| it.member);
        members
            .map(|it| (it.id.0, it.address, it.zone.to_string()))
            .collect()
    }

    async fn settle_at(&self, count: usize) -> Vec<(u64, String, String)> {
        let mut members = Vec::new();
        until(&format!("{count} nodes serve"), async || {
            members = self.members().await;
            members.len() == count
        })
        .await;
        members
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for number in 0..self.running.len() {
            if std::thread::panicking() {
                eprintln!("pod {number}:\n{}", self.log(number));
            }
            self.kill_9(number);
        }
    }
}

const MARK: &str = "left-the-cluster";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_a_stateful_set_joins_and_leaves_and_restarting_it_does_neither() {
    let mut pods = Pods::start().await;
    let founders = pods.settle_at(3).await;
    assert_eq!(founders[1].2, "zone-1", "of the machine");
    let client = pods.client().unwrap();
    let traffic = Traffic::start(&client, "pod", 200);
    let flows = async || {
        let before = traffic.done();
        until("traffic flows", async || traffic.done() > before + 200).await;
    };
    flows().await;

    // kubectl scale --replicas=4
    pods.kubernetes.scale(4);
    pods.run(3);
    let grown = pods.settle_at(4).await;
    assert_eq!(grown[..3], founders);
    assert_eq!(grown[3].1, pods.address(3));

    // As in a rolling update, a drained machine, or a deleted pod.
    for number in [3, 0] {
        pods.ask_to_stop(number);
        pods.has_stopped(number).await;
        pods.run(number);
        assert_eq!(pods.settle_at(4).await, grown, "no other members");
    }
    flows().await;

    // kubectl scale --replicas=3
    pods.kubernetes.scale(3);
    pods.ask_to_stop(3);
    pods.has_stopped(3).await;
    assert!(pods.log(3).contains("the node has left the cluster"));
    assert_eq!(pods.settle_at(3).await, founders);
    assert!(pods.data(3).join("store").exists(), "the volume is kept");

    // Scales up again, onto the volume that Kubernetes kept.
    flows().await;
    pods.kubernetes.scale(4);
    pods.run(3);
    let again = pods.settle_at(4).await;
    assert_ne!(
        again[3].0, grown[3].0,
        "a new member, not the old one's data"
    );
    flows().await;
    traffic.stop(&client).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_may_not_leave_or_gets_no_answer_keeps_its_data_and_its_place() {
    let mut pods = Pods::start().await;
    let founders = pods.settle_at(3).await;

    // Two nodes cannot hold three replicas.
    pods.kubernetes.scale(2);
    pods.ask_to_stop(2);
    pods.has_stopped(2).await;
    assert!(
        pods.log(2).contains("3 nodes hold up to 3 replicas"),
        "{}",
        pods.log(2)
    );
    assert!(!pods.data(2).join(MARK).exists());
    pods.run(2);
    assert_eq!(pods.settle_at(3).await, founders);

    // All of them: the cluster is paused.
    pods.kubernetes.scale(0);
    for number in 0..3 {
        pods.ask_to_stop(number);
    }
    for number in 0..3 {
        pods.has_stopped(number).await;
    }
    for number in 0..3 {
        pods.run(number);
    }
    assert_eq!(pods.settle_at(3).await, founders);

    pods.kubernetes.serving.abort();
    pods.ask_to_stop(2);
    pods.has_stopped(2).await;
    let log = pods.log(2);
    assert!(
        log.contains("cannot tell whether the StatefulSet is scaled down"),
        "{log}"
    );
    assert!(!pods.data(2).join(MARK).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_killed_while_it_leaves_goes_on_and_then_joins_as_a_new_node() {
    let mut pods = Pods::start().await;
    pods.kubernetes.scale(4);
    pods.run(3);
    let grown = pods.settle_at(4).await;
    pods.kubernetes.scale(3);
    pods.ask_to_stop(3);
    until("it begins to leave", async || {
        pods.log(3).contains("the node is leaving the cluster")
    })
    .await;
    // The grace period has ended or the machine is lost; then the StatefulSet is scaled up again.
    pods.kill_9(3);
    pods.kubernetes.scale(4);
    pods.joins_again(grown[3].0).await;
}

/// What its own disk says of its membership is older than what the cluster has decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_was_leaving_and_has_not_heard_the_end_joins_as_a_new_node() {
    let mut pods = Pods::start().await;
    pods.kubernetes.scale(4);
    pods.run(3);
    let grown = pods.settle_at(4).await;
    pods.kill_9(3);
    fs::write(pods.data(3).join("leaving-the-cluster"), "").unwrap();
    let dead = torc_client::GoOptions {
        dead: true,
        ..torc_client::GoOptions::default()
    };
    let client = pods.client().unwrap();
    client
        .leave_with(torc_client::NodeId(grown[3].0), dead)
        .await
        .unwrap();
    until("the others have removed it", async || {
        pods.members().await.len() == 3
    })
    .await;
    pods.run(3);
    pods.joins_again(grown[3].0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_lost_its_volume_joins_once_the_lost_node_is_written_off() {
    let mut pods = Pods::start().await;
    let founders = pods.settle_at(3).await;
    let client = pods.client().unwrap();
    client.put("k", "v").await.unwrap();
    pods.kill_9(2);
    fs::remove_dir_all(pods.data(2)).unwrap();
    pods.run(2);
    until("it says why it is not let in", async || {
        pods.log(2).contains("another member has the address")
    })
    .await;
    let status = pods.status().await.unwrap();
    assert_eq!(status.nodes.len(), 3, "nothing is removed by itself");

    // Like `kvctl leave-node 3 --dead --force`: for a moment, two nodes must suffice.
    let dead = torc_client::GoOptions {
        dead: true,
        force: true,
        ..torc_client::GoOptions::default()
    };
    client
        .leave_with(status.nodes[2].member.id, dead)
        .await
        .unwrap();
    let again = pods.settle_at(3).await;
    assert_ne!(again[2].0, founders[2].0);
    assert_eq!(again[2].1, founders[2].1);
    until("all replicas are there", async || {
        let status = pods.status().await;
        status.is_some_and(|status| status.under_replicated == Some(0))
    })
    .await;
    let got = client.get("k").await.unwrap().unwrap();
    assert_eq!(&got.value[..], b"v");
}

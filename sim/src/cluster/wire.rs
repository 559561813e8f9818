//! Sends operations to the cluster: through the library, which asks the lead, or directly to
//! any node, so several nodes coordinate writes of one key.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use torc_client::{Client, Condition, ErrorKind, PutOptions, Version};
use torc_proto::v1;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::{Fault, Reason, condition_to_wire, version_from_wire};
use torc_record::{Digest, NamespaceId};
use torc_sim::history::{Kind, Value};

use super::group::Group;
use super::recorder::{Answer, ttl_of};
use super::{Error, recorder::Begun};

/// Time limit of an operation that goes directly to a node; the library has its own.
const TIME: Duration = Duration::from_secs(2);

/// A request: its kind, and the expected version of a conditional put.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) begun: Begun,
    pub(super) version: Option<Version>,
}

impl Ask {
    fn condition(&self) -> Option<Condition> {
        match self.begun.kind {
            Kind::PutIfAbsent(_) => Some(Condition::IfAbsent),
            Kind::Cas(..) | Kind::DeleteIf(_) => self.version.map(Condition::IfVersion),
            _ => None,
        }
    }
}

/// A client's access to the cluster.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    library: Client,
    namespace: (String, NamespaceId),
    straight: Arc<Mutex<HashMap<SocketAddr, KvClient<Channel>>>>,
}

impl Wire {
    pub(super) fn new(group: &Group) -> Result<Self, Error> {
        Ok(Self {
            library: group.client()?,
            namespace: group.namespace(),
            straight: Arc::default(),
        })
    }

    /// The connection to a node, made on first use.
    fn straight(&self, node: SocketAddr) -> Option<KvClient<Channel>> {
        let mut straight = self.straight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = straight.get(&node) {
            return Some(known.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{node}")).ok()?;
        let endpoint = endpoint.connect_timeout(Duration::from_millis(500));
        let client = KvClient::new(endpoint.connect_lazy());
        straight.insert(node, client.clone());
        Some(client)
    }

    pub(super) fn library(&self) -> &Client {
        &self.library
    }

    /// Sends through the library.
    pub(super) async fn ask(&self, ask: &Ask) -> Answer {
        let name = ask.begun.name.clone();
        let answer = match ask.begun.kind {
            Kind::Get | Kind::Reserve(_) => self.library.get(name).await.map(|found| match found {
                Some(found) => Answer::Found(number(&found.value), found.version),
                None => Answer::Absent,
            }),
            Kind::Erase => self.library.erase(name).await.map(Answer::Written),
            Kind::Delete | Kind::DeleteIf(_) => self
                .library
                .delete_with(name, ask.condition())
                .await
                .map(|deleted| deletion(deleted.existed)),
            Kind::Put(value)
            | Kind::PutIfAbsent(value)
            | Kind::Cas(_, value)
            | Kind::Merge(_, value) => {
                let options = PutOptions {
                    condition: ask.condition(),
                    ttl: ttl_of(value),
                    ..PutOptions::default()
                };
                let put = self.library.put_with(name, bytes(value), options);
                put.await.map(Answer::Written)
            }
        };
        answer.unwrap_or_else(|error| match error.kind() {
            ErrorKind::ConditionNotMet => Answer::Unmet,
            _ if error.maybe_applied() => Answer::Unknown,
            _ => Answer::Failed,
        })
    }

    /// Sends to one node, which must coordinate the operation itself.
    pub(super) async fn ask_node(&self, node: SocketAddr, ask: &Ask) -> Answer {
        let asking = self.straight_to(node, ask);
        // A stopped node does not notice its own timeout.
        let answer = tokio::time::timeout(TIME + TIME / 2, asking).await;
        let fault = match answer {
            Ok(Ok(answer)) => return answer,
            Ok(Err(fault)) => fault,
            Err(_) => return Answer::Unknown,
        };
        if fault.reason == Reason::StaleEpoch {
            // The next operation is routed by the refreshed topology.
            let _ = self.library.topology().await;
        }
        match fault.reason {
            Reason::ConditionNotMet => Answer::Unmet,
            _ if fault.maybe_applied => Answer::Unknown,
            _ => Answer::Failed,
        }
    }

    async fn straight_to(&self, node: SocketAddr, ask: &Ask) -> Result<Answer, Fault> {
        let Some(mut kv) = self.straight(node) else {
            return Ok(Answer::Failed);
        };
        let key = ask.begun.name.clone().into_bytes();
        let Some((digest, route)) = self.route(&key) else {
            return Ok(Answer::Failed);
        };
        let (digest, route) = (digest.0.to_vec().into(), Some(route));
        let (namespace, key) = (self.namespace.0.clone(), key.into());
        match ask.begun.kind {
            Kind::Get | Kind::Reserve(_) => {
                let consistency = 0;
                let request = v1::GetRequest {
                    namespace,
                    key,
                    digest,
                    route,
                    consistency,
                    ..v1::GetRequest::default()
                };
                let answer = told(kv.get(timed(request)).await)?;
                Ok(match (answer.found, version(answer.version.as_ref())) {
                    (true, Some(version)) => Answer::Found(number(&answer.value), version),
                    _ => Answer::Absent,
                })
            }
            Kind::Delete | Kind::Erase | Kind::DeleteIf(_) => {
                let want_existed = ask.begun.kind != Kind::Erase;
                let request = v1::DeleteRequest {
                    want_existed,
                    namespace,
                    key,
                    digest,
                    route,
                    condition: ask.condition().map(condition_to_wire),
                    ..v1::DeleteRequest::default()
                };
                let answer = told(kv.delete(timed(request)).await)?;
                Ok(deletion(answer.existed))
            }
            Kind::Put(value)
            | Kind::PutIfAbsent(value)
            | Kind::Cas(_, value)
            | Kind::Merge(_, value) => {
                let request = v1::PutRequest {
                    namespace,
                    key,
                    value: bytes(value).into(),
                    digest,
                    route,
                    condition: ask.condition().map(condition_to_wire),
                    ttl_ms: ttl_of(value).map_or(0, |ttl| ttl.as_millis() as u64),
                    ..v1::PutRequest::default()
                };
                let answer = told(kv.put(timed(request)).await)?;
                let version = version(answer.version.as_ref());
                Ok(version.map_or(Answer::Unknown, Answer::Written))
            }
        }
    }

    /// A route as if the node led the key's partition.
    fn route(&self, key: &[u8]) -> Option<(Digest, v1::Route)> {
        let table = self.library.known_topology()?;
        let digest = Digest::of(&table.digest_key, self.namespace.1, key);
        let partition = table.partition_of(self.namespace.1, &digest);
        let epoch = table.state(partition)?.config.epoch;
        let route = v1::Route {
            partition: partition.0,
            epoch: epoch.0,
        };
        Some((digest, route))
    }
}

/// A value's number, from its bytes; a number that was never written if they are malformed.
pub(super) fn number(bytes: &[u8]) -> Value {
    let bytes = bytes.get(..4).and_then(|head| head.try_into().ok());
    bytes.map_or(Value::MAX, Value::from_be_bytes)
}

/// The bytes of a value; some values are long.
fn bytes(value: Value) -> Vec<u8> {
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.resize(4 + value as usize % 400, 0x5a);
    bytes
}

const fn deletion(existed: bool) -> Answer {
    if existed {
        Answer::Deleted
    } else {
        Answer::Absent
    }
}

fn version(wire: Option<&v1::Version>) -> Option<Version> {
    version_from_wire(wire?).ok()
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(TIME);
    request
}

fn told<T>(answer: Result<Response<T>, Status>) -> Result<T, Fault> {
    answer
        .map(Response::into_inner)
        .map_err(|status| Fault::from_status(&status))
}

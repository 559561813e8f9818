//! Sends operations, one by one or in batches, to the cluster: through the library, which asks the lead,
//! or directly to any node, so several nodes coordinate writes of one key.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
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

    /// As an item of a batch of the library.
    fn record(&self, value: Value) -> (String, Vec<u8>, PutOptions) {
        let options = PutOptions {
            condition: self.condition(),
            ttl: ttl_of(value),
            ..PutOptions::default()
        };
        (self.begun.name.clone(), bytes(value), options)
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
            Kind::Get | Kind::Reserve(_) => self.library.get(name).await.map(finding),
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
                let (name, bytes, options) = ask.record(value);
                let put = self.library.put_with(name, bytes, options);
                put.await.map(Answer::Written)
            }
        };
        answer.unwrap_or_else(|error| of_error(&error))
    }

    /// Sends operations, all of them gets or all of them puts, through the library as one batch.
    pub(super) async fn ask_batch(&self, asks: &[Ask]) -> Vec<Answer> {
        if let Some(records) = records_of(asks) {
            let puts = self.library.batch_put_with(records).await;
            each(puts, asks.len(), Answer::Written)
        } else {
            let names = asks.iter().map(|ask| ask.begun.name.clone());
            let gets = self.library.batch_get(names).await;
            each(gets, asks.len(), finding)
        }
    }

    /// Sends to one node, which must coordinate the operation itself.
    pub(super) async fn ask_node(&self, node: SocketAddr, ask: &Ask) -> Answer {
        match in_time(self.straight_to(node, ask)).await {
            Ok(answer) => answer,
            Err(fault) => self.of_fault(&fault).await,
        }
    }

    /// Sends operations, all of them gets or all of them puts, to one node as one batch.
    pub(super) async fn ask_node_for_batch(&self, node: SocketAddr, asks: &[Ask]) -> Vec<Answer> {
        let results = in_time(self.batch_straight_to(node, asks)).await;
        let results = results.unwrap_or_else(|fault| vec![Err(fault); asks.len()]);
        let mut answers = Vec::with_capacity(asks.len());
        for result in results {
            answers.push(match result {
                Ok(answer) => answer,
                Err(fault) => self.of_fault(&fault).await,
            });
        }
        // An item without an answer may have been stored.
        answers.resize(asks.len(), Answer::Unknown);
        answers
    }

    async fn of_fault(&self, fault: &Fault) -> Answer {
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
        let Some(place) = self.place(ask) else {
            return Ok(Answer::Failed);
        };
        match ask.begun.kind {
            Kind::Get | Kind::Reserve(_) => {
                let answer = told(kv.get(timed(place.get())).await)?;
                Ok(found(&answer))
            }
            Kind::Delete | Kind::Erase | Kind::DeleteIf(_) => {
                let request = v1::DeleteRequest {
                    want_existed: ask.begun.kind != Kind::Erase,
                    namespace: place.namespace,
                    key: place.key,
                    digest: place.digest,
                    route: place.route,
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
                let answer = told(kv.put(timed(place.put(ask, value))).await)?;
                Ok(written(&answer))
            }
        }
    }

    async fn batch_straight_to(
        &self,
        node: SocketAddr,
        asks: &[Ask],
    ) -> Result<Vec<Result<Answer, Fault>>, Fault> {
        let failed = || Ok(vec![Ok(Answer::Failed); asks.len()]);
        let Some(mut kv) = self.straight(node) else {
            return failed();
        };
        let places: Option<Vec<_>> = asks.iter().map(|ask| self.place(ask)).collect();
        let Some(places) = places else {
            return failed();
        };
        if let Some(values) = values_of(asks) {
            let items = places.into_iter().zip(asks).zip(values);
            let items = items.map(|((place, ask), value)| place.put(ask, value));
            let items = items.collect();
            let answer = told(kv.batch_put(timed(v1::BatchPutRequest { items })).await)?;
            let results = answer
                .results
                .into_iter()
                .map(|result| match result.outcome {
                    Some(v1::put_result::Outcome::Ok(put)) => Ok(written(&put)),
                    Some(v1::put_result::Outcome::Fault(fault)) => Err(fault.into()),
                    None => Ok(Answer::Unknown),
                });
            Ok(results.collect())
        } else {
            let items = places.into_iter().map(Place::get).collect();
            let answer = told(kv.batch_get(timed(v1::BatchGetRequest { items })).await)?;
            let results = answer
                .results
                .into_iter()
                .map(|result| match result.outcome {
                    Some(v1::get_result::Outcome::Ok(get)) => Ok(found(&get)),
                    Some(v1::get_result::Outcome::Fault(fault)) => Err(fault.into()),
                    None => Ok(Answer::Unknown),
                });
            Ok(results.collect())
        }
    }

    /// The place of the operation's key, as if the node led its partition.
    fn place(&self, ask: &Ask) -> Option<Place> {
        let key = ask.begun.name.clone().into_bytes();
        let (digest, route) = self.route(&key)?;
        Some(Place {
            namespace: self.namespace.0.clone(),
            key: key.into(),
            digest: digest.0.to_vec().into(),
            route: Some(route),
        })
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

/// What requests for a key have in common.
struct Place {
    namespace: String,
    key: Bytes,
    digest: Bytes,
    route: Option<v1::Route>,
}

impl Place {
    fn get(self) -> v1::GetRequest {
        v1::GetRequest {
            namespace: self.namespace,
            key: self.key,
            digest: self.digest,
            route: self.route,
            ..v1::GetRequest::default()
        }
    }

    fn put(self, ask: &Ask, value: Value) -> v1::PutRequest {
        v1::PutRequest {
            namespace: self.namespace,
            key: self.key,
            value: bytes(value).into(),
            digest: self.digest,
            route: self.route,
            condition: ask.condition().map(condition_to_wire),
            ttl_ms: ttl_of(value).map_or(0, |ttl| ttl.as_millis() as u64),
            ..v1::PutRequest::default()
        }
    }
}

/// The values of puts; `None` for gets.
fn values_of(asks: &[Ask]) -> Option<Vec<Value>> {
    let values = asks.iter().map(|ask| match ask.begun.kind {
        Kind::Put(value) | Kind::PutIfAbsent(value) | Kind::Cas(_, value) => Some(value),
        _ => None,
    });
    values.collect()
}

/// The records of puts; `None` for gets.
fn records_of(asks: &[Ask]) -> Option<Vec<(String, Vec<u8>, PutOptions)>> {
    let values = values_of(asks)?;
    let records = asks.iter().zip(values);
    Some(records.map(|(ask, value)| ask.record(value)).collect())
}

/// One answer for each of the `count` items of a batch. If the whole batch failed, all fail as it did.
fn each<T>(
    results: Result<Vec<Result<T, torc_client::Error>>, torc_client::Error>,
    count: usize,
    answer: impl Fn(T) -> Answer,
) -> Vec<Answer> {
    let of_one = |result: Result<T, _>| match result {
        Ok(done) => answer(done),
        Err(error) => of_error(&error),
    };
    match results {
        Ok(results) => results.into_iter().map(of_one).collect(),
        Err(error) => vec![of_error(&error); count],
    }
}

fn of_error(error: &torc_client::Error) -> Answer {
    match error.kind() {
        ErrorKind::ConditionNotMet => Answer::Unmet,
        _ if error.maybe_applied() => Answer::Unknown,
        _ => Answer::Failed,
    }
}

/// What a node answered. A stopped one does not notice its own timeout.
async fn in_time<T>(asking: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let answer = tokio::time::timeout(TIME + TIME / 2, asking).await;
    answer.unwrap_or_else(|_| Err(Fault::unknown("no answer")))
}

fn finding(found: Option<torc_client::Value>) -> Answer {
    found.map_or(Answer::Absent, |found| {
        Answer::Found(number(&found.value), found.version)
    })
}

fn found(answer: &v1::GetResponse) -> Answer {
    match (answer.found, version(answer.version.as_ref())) {
        (true, Some(version)) => Answer::Found(number(&answer.value), version),
        _ => Answer::Absent,
    }
}

fn written(answer: &v1::PutResponse) -> Answer {
    version(answer.version.as_ref()).map_or(Answer::Unknown, Answer::Written)
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

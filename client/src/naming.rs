//! Adds the client's cluster and token, if any, to every request.
//!
//! Before its first topology, a client names no cluster. Afterwards, if a node of another
//! cluster takes over a member's address, it refuses the client's requests.

use std::sync::{Arc, OnceLock};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use torc_proto::v1::kv_client::KvClient;
use torc_proto::{MAX_MESSAGE_LEN, Names};
use torc_ring::topology::{Bearer, ClusterId};

use crate::Error;

/// A connection whose requests name the cluster and carry the token.
pub(crate) type Connection = InterceptedService<Channel, Naming>;

/// The cluster's id, once known, and the token. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Naming {
    names: Arc<OnceLock<Names>>,
    /// Hidden from `Debug`.
    authorization: Option<MetadataValue<Ascii>>,
}

impl Naming {
    /// For encrypted connections only.
    pub(crate) fn with_token(token: &Bearer) -> Result<Self, Error> {
        let value = MetadataValue::try_from(format!("Bearer {}", token.reveal()));
        let mut value = value.map_err(|_| Error::malformed("a token", false))?;
        value.set_sensitive(true);
        Ok(Self {
            names: Arc::default(),
            authorization: Some(value),
        })
    }

    /// Names this cluster from now on. Only the first call counts.
    pub(crate) fn set(&self, cluster: ClusterId) {
        self.names.get_or_init(|| Names::of_cluster(cluster));
    }

    pub(crate) fn on(&self, channel: Channel) -> Connection {
        InterceptedService::new(channel, self.clone())
    }
}

/// A client of the key-value service on this connection.
pub(crate) fn kv(channel: Connection) -> KvClient<Connection> {
    KvClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_LEN)
        .max_encoding_message_size(MAX_MESSAGE_LEN)
}

impl Interceptor for Naming {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(names) = self.names.get() {
            names.add_to(request.metadata_mut());
        }
        if let Some(token) = &self.authorization {
            let metadata = request.metadata_mut();
            metadata.insert("authorization", token.clone());
        }
        Ok(request)
    }
}

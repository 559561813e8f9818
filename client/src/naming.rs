//! Requests name the cluster that the client belongs to.
//!
//! Until the client has a topology it belongs to none, and names none. From then on a node of
//! another cluster that has come to a member's address refuses its requests.

use std::sync::{Arc, OnceLock};

use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use torc_proto::Names;
use torc_ring::topology::ClusterId;

/// A connection whose requests name the cluster.
pub(crate) type Connection = InterceptedService<Channel, Naming>;

/// The cluster's name, once it is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Naming(Arc<OnceLock<Names>>);

impl Naming {
    /// Names this cluster from now on; the first one stays.
    pub(crate) fn set(&self, cluster: ClusterId) {
        self.0.get_or_init(|| Names::of_cluster(cluster));
    }

    pub(crate) fn on(&self, channel: Channel) -> Connection {
        InterceptedService::new(channel, self.clone())
    }
}

impl Interceptor for Naming {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(names) = self.0.get() {
            names.add_to(request.metadata_mut());
        }
        Ok(request)
    }
}

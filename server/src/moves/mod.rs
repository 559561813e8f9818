//! A node's part in moving partitions, apart from its replicas: receives sealed slices,
//! reports the facts that advance the topology to the next stage, and watches receiving
//! nodes.

pub(crate) mod copier;
mod reporter;
pub(crate) mod retreat;
pub(crate) mod slices;
mod throttle;

pub(crate) use reporter::Reporter;
pub(crate) use throttle::Throttle;

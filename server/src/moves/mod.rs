//! What a node does because partitions move, besides its replicas: receives sealed slices,
//! reports the facts that let the topology go to the next stage, and watches newcomers.

mod reporter;
pub(crate) mod retreat;
pub(crate) mod slices;
mod throttle;

pub(crate) use reporter::Reporter;
pub(crate) use throttle::Throttle;

//! A get on its way to one replica, and if that takes long to a second one as well.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Response, Status};
use torc_proto::v1;
use torc_ring::Partition;

use crate::call::{Patience, attempt_patiently};
use crate::core::{Core, Hop};
use crate::retry::Failure;
use crate::view::View;

/// A get that has waited so long goes to a second replica although no hedge has been
/// earned: whoever it waits for stalls, and is avoided soon.
const LATE: Duration = Duration::from_millis(250);

/// One way to a replica.
pub(crate) struct Lane<'a> {
    pub(crate) hop: &'a Hop,
    pub(crate) route: Option<v1::Route>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(hop: &'a Hop, view: &View, partition: Partition) -> Self {
        let route = hop.route(view, partition);
        Self { hop, route }
    }
}

/// Sends on the first lane, after a while on the second too; the first answer counts.
pub(crate) async fn race<T, F, Fut>(
    core: &Core,
    [first, second]: [Lane<'_>; 2],
    deadline: Instant,
    patience: Patience,
    send: F,
) -> Result<T, Failure>
where
    F: Fn(Channel, Duration, Option<v1::Route>) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let on = |lane: &Lane<'_>| {
        let (peer, route) = (lane.hop.peer.clone(), lane.route);
        let send = &send;
        async move {
            let sending = |channel, budget| send(channel, budget, route);
            attempt_patiently(&peer, deadline, Some(patience), sending).await
        }
    };
    let began = Instant::now();
    let mut alone = pin!(on(&first));
    let wait = core.pace().wait();
    let mut waited = timeout_at(began + wait, &mut alone).await;
    if waited.is_err() && !core.pace().may_hedge() {
        waited = timeout_at(began + wait.max(LATE), &mut alone).await;
    }
    if let Ok(outcome) = waited {
        return outcome.inspect(|_| won(core, &first, began));
    }
    let hedged = Instant::now();
    match select(alone, pin!(on(&second))).await {
        Either::Left((Ok(answer), _)) => {
            won(core, &first, began);
            Ok(answer)
        }
        Either::Left((Err(failure), other)) => other.await.map_err(|_| failure),
        Either::Right((Ok(answer), _)) => {
            first.hop.peer.was_late();
            won(core, &second, hedged);
            Ok(answer)
        }
        Either::Right((Err(_), alone)) => alone.await,
    }
}

fn won(core: &Core, lane: &Lane<'_>, began: Instant) {
    lane.hop.peer.was_in_time();
    core.pace().took(began.elapsed());
}

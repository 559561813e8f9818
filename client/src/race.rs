//! A get on its way to one replica, and if that takes long to a second one as well.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::time::{Instant, timeout_at};
use tonic::{Response, Status};
use torc_proto::v1;
use torc_ring::Partition;

use crate::call::{Patience, attempt_patiently};
use crate::core::{Core, Hop};
use crate::retry::Failure;
use crate::session::Line;
use crate::view::View;

/// A get that has waited so long goes to a second replica although no hedge has been
/// earned, unless too many do: whoever it waits for stalls, and is avoided soon. Where all are slow because
/// there is too much to do, that would make more of it.
const LATE: Duration = Duration::from_millis(250);

/// One way to a replica.
pub(crate) struct Lane {
    pub(crate) hop: Hop,
    pub(crate) route: Option<v1::Route>,
}

impl Lane {
    pub(crate) fn new(hop: Hop, view: &View, partition: Partition) -> Self {
        let route = hop.route(view, partition);
        Self { hop, route }
    }
}

/// Sends on the first lane, after a while on the second too if there is one; the first answer
/// counts.
pub(crate) async fn race<T, F, Fut>(
    core: &Core,
    first: Lane,
    second: impl FnOnce() -> Option<Lane>,
    deadline: Instant,
    patience: Patience,
    send: F,
) -> Result<T, Failure>
where
    F: Fn(Line, Duration, Option<v1::Route>) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let sent = AtomicBool::new(false);
    let on = |lane: &Lane| {
        let (peer, route) = (lane.hop.peer.clone(), lane.route);
        let (send, sent) = (&send, &sent);
        async move {
            let sending = |line, budget| {
                sent.store(true, Ordering::Relaxed);
                send(line, budget, route)
            };
            attempt_patiently(&peer, deadline, patience, sending).await
        }
    };
    let began = Instant::now();
    // What waits here for its turn would wait for it elsewhere too.
    let queues =
        || !sent.load(Ordering::Relaxed) && first.hop.peer.was_heard_since(began.into_std());
    let mut alone = pin!(on(&first));
    let wait = core.pace().wait();
    let mut waited = timeout_at(began + wait, &mut alone).await;
    // Held until one has answered.
    let _place = if waited.is_err() && (queues() || !core.pace().may_hedge()) {
        let mut time = wait.max(LATE);
        let mut until = began + time;
        loop {
            waited = timeout_at(until, &mut alone).await;
            let free = || core.late_hedges().try_acquire().ok();
            let place = free().filter(|_| !queues());
            if waited.is_ok() || place.is_some() {
                break place;
            }
            // Thousands may wait here for their turn.
            time = if queues() { time * 2 } else { LATE };
            until += time;
        }
    } else {
        None
    };
    if let Ok(outcome) = waited {
        return outcome.inspect(|_| won(core, &first, began));
    }
    let Some(second) = second() else {
        return alone.await;
    };
    let hedged = Instant::now();
    match select(alone, pin!(on(&second))).await {
        Either::Left((Ok(answer), _)) => {
            won(core, &first, began);
            Ok(answer)
        }
        Either::Left((Err(failure), other)) => other.await.map_err(|_| failure),
        Either::Right((Ok(answer), _)) => {
            core.was_late(&first.hop.peer);
            won(core, &second, hedged);
            Ok(answer)
        }
        Either::Right((Err(_), alone)) => alone.await,
    }
}

fn won(core: &Core, lane: &Lane, began: Instant) {
    lane.hop.peer.was_in_time();
    core.pace().took(began.elapsed());
}

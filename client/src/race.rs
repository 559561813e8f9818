//! A hedged get: goes to one replica and, if the answer takes long, also to a second one.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::time::{Instant, timeout_at};
use tonic::{Response, Status};
use torc_proto::v1;
use torc_ring::Partition;

use crate::core::{Core, Target};
use crate::peer::attempt::{AttemptTimeout, attempt_with_timeout};
use crate::retry::Failure;
use crate::view::View;
use torc_session::SessionPermit;

/// A get that has waited this long is hedged even if the budget is spent, because the replica has
/// stalled and its breaker will trip soon. A fixed number at a time limits this: in an overloaded
/// cluster, hedges would add load.
const LATE: Duration = Duration::from_millis(250);

/// A target, and the route to send, so the target can check that it serves the partition.
pub(crate) struct RoutedTarget {
    pub(crate) target: Target,
    pub(crate) route: Option<v1::Route>,
}

impl RoutedTarget {
    /// Without a route if the partition is not known.
    pub(crate) fn new(target: Target, view: &View, partition: Option<Partition>) -> Self {
        let route = partition.and_then(|partition| target.route(view, partition));
        Self { target, route }
    }
}

/// Sends to the first target and, after the hedging delay, also to the second, if any; the
/// first answer counts.
pub(crate) async fn race<T, F, Fut>(
    core: &Core,
    first: RoutedTarget,
    second: impl FnOnce() -> Option<RoutedTarget>,
    deadline: Instant,
    attempt_timeout: AttemptTimeout,
    send: F,
) -> Result<T, Failure>
where
    F: Fn(SessionPermit, Duration, Option<v1::Route>) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let sent = AtomicBool::new(false);
    let send_to = |to: &RoutedTarget| {
        let (peer, route) = (to.target.peer.clone(), to.route);
        let (send, sent) = (&send, &sent);
        async move {
            let sending = |permit, budget| {
                sent.store(true, Ordering::Relaxed);
                send(permit, budget, route)
            };
            attempt_with_timeout(&peer, deadline, attempt_timeout, sending).await
        }
    };
    let began = Instant::now();
    // A get that still waits for its turn here would wait at another replica too.
    let queues =
        || !sent.load(Ordering::Relaxed) && first.target.peer.was_heard_since(began.into_std());
    let mut alone = pin!(send_to(&first));
    let delay = core.hedge_budget().delay();
    let mut waited = timeout_at(began + delay, &mut alone).await;
    // Held until one of them has answered.
    let _place = if waited.is_err() && (queues() || !core.hedge_budget().try_spend()) {
        let mut time = delay.max(LATE);
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
    match select(alone, pin!(send_to(&second))).await {
        Either::Left((Ok(answer), _)) => {
            won(core, &first, began);
            Ok(answer)
        }
        Either::Left((Err(failure), other)) => other.await.map_err(|_| failure),
        Either::Right((Ok(answer), _)) => {
            core.was_late(&first.target.peer);
            won(core, &second, hedged);
            Ok(answer)
        }
        Either::Right((Err(_), alone)) => alone.await,
    }
}

fn won(core: &Core, to: &RoutedTarget, began: Instant) {
    to.target.peer.was_in_time();
    core.hedge_budget().record(began.elapsed());
}

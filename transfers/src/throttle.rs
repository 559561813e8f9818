//! A limit on bytes per second that all transfers share.

#![expect(clippy::cast_precision_loss, reason = "a rate")]

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// Unused time that is saved up, because timers are coarse.
const SAVED: Duration = Duration::from_millis(50);

/// Clients are served if one of their operations began within this time.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// Schedules transfers one after another: each caller waits until the bytes before its own, and its own, have
/// had their time. So no caller owes time, and a throttle may be dropped and made again. A caller that gives
/// up takes no time.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_s: u64,
    serving: Option<Serving>,
    state: Mutex<State>,
}

/// The rate while clients are served.
struct Serving {
    bytes_per_s: u64,
    /// The operations of clients that have begun so far.
    begun: Box<dyn Fn() -> u64 + Send + Sync>,
}

#[derive(Debug)]
struct State {
    /// The bytes taken so far have their time until then.
    free_at: Instant,
    /// The operations that had begun at the last call.
    begun: u64,
    served_until: Option<Instant>,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Throttle {
    /// Callers share this many bytes per second, from `now` on.
    #[must_use]
    pub fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self {
            bytes_per_s: bytes_per_s.max(1),
            serving: None,
            state: Mutex::new(State {
                free_at: now,
                begun: 0,
                served_until: None,
            }),
        }
    }

    /// The same, but with this rate while clients are served. `begun` counts the operations that they have begun so far.
    #[must_use]
    pub fn while_serving(
        self,
        bytes_per_s: u64,
        begun: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let serving = Serving {
            bytes_per_s: bytes_per_s.max(1),
            begun: Box::new(begun),
        };
        Self {
            serving: Some(serving),
            ..self
        }
    }

    /// Waits until `bytes` may be sent. Callers are served in turn.
    pub async fn take(&self, bytes: u64) {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let rate = self.rate(&mut state, now);
        let until = until(rate, state.free_at, now, bytes);
        tokio::time::sleep_until(until.into()).await;
        state.free_at = until;
    }

    fn rate(&self, state: &mut State, now: Instant) -> u64 {
        let Some(serving) = &self.serving else {
            return self.bytes_per_s;
        };
        let begun = (serving.begun)();
        if std::mem::replace(&mut state.begun, begun) != begun {
            state.served_until = Some(now + SERVED_WITHIN);
        }
        match state.served_until {
            Some(until) if now < until => serving.bytes_per_s,
            _ => self.bytes_per_s,
        }
    }
}

/// The end of the time of `bytes`, if the bytes before them have theirs until `free_at`.
fn until(bytes_per_s: u64, free_at: Instant, now: Instant, bytes: u64) -> Instant {
    let needs = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
    let saved = now.checked_sub(SAVED);
    saved.map_or(free_at, |saved| saved.max(free_at)) + needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn takers_wait_in_turn_and_one_that_gives_up_takes_no_time() {
        let begun = Instant::now();
        let throttle = Throttle::new(1_000, begun);
        for _ in 0..100 {
            let mut waiting = pin!(throttle.take(3_600_000));
            assert!(
                waiting.as_mut().now_or_never().is_none(),
                "also the first one waits for an hour"
            );
        }
        let free_at = throttle.state.lock().await.free_at;
        assert_eq!(free_at, begun, "those that gave up take no time");
        throttle.take(20).await;
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn bytes_never_exceed_the_rate() {
        let begun = Instant::now();
        let s = Duration::from_secs;
        let mut free_at = begun;
        for taken in 1..=10 {
            // Each caller comes when the one before it is done.
            free_at = until(1_000, free_at, free_at, 8_000);
            assert_eq!(free_at, begun + s(8 * taken), "{taken} times 8,000 bytes");
        }
        let late = until(1_000, begun, begun + s(3_600), 1_000);
        assert_eq!(late + SAVED, begun + s(3_601), "little time is saved up");
    }

    /// A request to write a part of a backup has a throttle of its own.
    #[test]
    fn a_new_throttle_forgives_nothing() {
        let begun = Instant::now();
        let mut now = begun;
        for _ in 0..16 {
            now = until(1_000, now, now, 500);
        }
        assert_eq!(now, begun + Duration::from_secs(8));
    }

    #[tokio::test]
    async fn the_rate_is_another_while_clients_are_served() {
        let operations = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&operations);
        let now = Instant::now();
        let throttle =
            Throttle::new(100, now).while_serving(10, move || counted.load(Ordering::Relaxed));
        let mut state = throttle.state.lock().await;
        assert_eq!(throttle.rate(&mut state, now), 100);
        operations.store(1, Ordering::Relaxed);
        assert_eq!(throttle.rate(&mut state, now), 10);
        let later = now + SERVED_WITHIN / 2;
        assert_eq!(throttle.rate(&mut state, later), 10, "it was just served");
        assert_eq!(throttle.rate(&mut state, now + SERVED_WITHIN), 100);
    }
}

//! Lets gets of one key share an answer.
//!
//! Invariant, without which reads could go back in time: *a get shares only the answer to a request
//! that was sent after the get started.* The answer to an earlier request may be older than a write
//! acknowledged before the get started. So while a request is in flight, new gets wait for the next
//! one and share it: per key, at most one request is in flight and one group waits.
//!
//! The first of a group sends, with its own deadline. If it is dropped, the next one sends; if its
//! request fails, each of the others sends for itself.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use torc_proto::v1::Quorum;
use torc_record::Digest;

use crate::options::Consistency;

/// Gets that may share an answer.
pub(super) type What = (Digest, Consistency, Quorum);

/// The running gets of hot keys.
#[derive(Debug)]
pub(super) struct Flights<T> {
    keys: Mutex<HashMap<What, Flight<T>>>,
}

/// Those of one key.
#[derive(Debug)]
struct Flight<T> {
    /// Held while a request is in flight.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Those whose request has not been sent.
    waiting: Option<Arc<Group<T>>>,
    /// Number of gets.
    gets: usize,
}

/// A shared answer; `None` if the request failed.
type Group<T> = OnceCell<Option<T>>;

/// The outcome of a get.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shared<T, E> {
    /// It sent the request itself.
    Own(Result<T, E>),
    /// It shared another get's answer.
    Joined(T),
    /// Another get's request failed: send one.
    Alone,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self {
            keys: Mutex::default(),
        }
    }
}

impl<T: Clone> Flights<T> {
    /// Sends a get, or shares the answer of one that is sent after this call. `send` is polled within this call only.
    pub(super) async fn share<E>(
        &self,
        what: What,
        send: impl Future<Output = Result<T, E>>,
    ) -> Shared<T, E> {
        let (seat, turn, group) = self.join(what);
        let mut own = None;
        let sending = async {
            let _turn = turn.lock().await;
            seat.close(&group);
            let result = send.await;
            let answer = result.as_ref().ok().cloned();
            own = Some(result);
            answer
        };
        let answer = group.get_or_init(|| sending).await.clone();
        match (own, answer) {
            (Some(result), _) => Shared::Own(result),
            (None, Some(answer)) => Shared::Joined(answer),
            (None, None) => Shared::Alone,
        }
    }

    fn join(&self, what: What) -> (Seat<'_, T>, Arc<tokio::sync::Mutex<()>>, Arc<Group<T>>) {
        let mut keys = self.keys.lock();
        let flight = keys.entry(what).or_insert_with(|| Flight {
            turn: Arc::default(),
            waiting: None,
            gets: 0,
        });
        flight.gets += 1;
        let group = flight.waiting.get_or_insert_with(Arc::default);
        let group = Arc::clone(group);
        let seat = Seat {
            flights: self,
            what,
        };
        (seat, Arc::clone(&flight.turn), group)
    }
}

/// A get's place; released however it ends.
struct Seat<'a, T> {
    flights: &'a Flights<T>,
    what: What,
}

impl<T> Seat<'_, T> {
    /// Closes the group to new gets.
    fn close(&self, group: &Arc<Group<T>>) {
        let mut keys = self.flights.keys.lock();
        if let Some(flight) = keys.get_mut(&self.what)
            && flight
                .waiting
                .as_ref()
                .is_some_and(|waiting| Arc::ptr_eq(waiting, group))
        {
            flight.waiting = None;
        }
    }
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut keys = self.flights.keys.lock();
        if let Some(flight) = keys.get_mut(&self.what) {
            flight.gets -= 1;
            if flight.gets == 0 {
                keys.remove(&self.what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;

    use futures::FutureExt as _;
    use futures::future::join_all;
    use tokio::sync::oneshot;

    use super::*;

    const WHAT: What = (
        Digest([1; 16]),
        Consistency::Linearizable,
        Quorum::Unspecified,
    );

    /// Requests that were sent and wait for their answers, oldest first.
    #[derive(Default)]
    struct Sent(RefCell<Vec<oneshot::Sender<Result<u32, ()>>>>);

    impl Sent {
        async fn send(&self) -> Result<u32, ()> {
            let (answer, answered) = oneshot::channel();
            self.0.borrow_mut().push(answer);
            answered.await.unwrap()
        }

        fn answer(&self, number: usize, with: Result<u32, ()>) {
            self.0.borrow_mut().remove(number).send(with).unwrap();
        }

        fn count(&self) -> usize {
            self.0.borrow().len()
        }
    }

    #[test]
    fn a_get_never_shares_the_answer_to_a_request_that_was_sent_before_it_began() {
        let (flights, sent) = (Flights::default(), Sent::default());
        let mut first = pin!(flights.share(WHAT, sent.send()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut later: Vec<_> = (0..3)
            .map(|_| Box::pin(flights.share(WHAT, sent.send())))
            .collect();
        for get in &mut later {
            assert!(get.as_mut().now_or_never().is_none());
        }
        assert_eq!(sent.count(), 1, "they wait for the next request");
        sent.answer(0, Ok(1));
        assert_eq!(first.now_or_never(), Some(Shared::Own(Ok(1))));
        let mut all = pin!(join_all(later));
        assert!(all.as_mut().now_or_never().is_none());
        assert_eq!(sent.count(), 1, "which is one for all of them");
        sent.answer(0, Ok(2));
        let own = |it: &Shared<u32, ()>| matches!(it, Shared::Own(Ok(2)));
        let all = all.now_or_never().unwrap();
        assert_eq!(all.iter().filter(|it| own(it)).count(), 1);
        assert!(all.iter().all(|it| own(it) || *it == Shared::Joined(2)));
        assert!(flights.keys.lock().is_empty(), "nothing is left behind");
    }

    #[test]
    fn when_the_one_that_sends_is_dropped_another_one_sends() {
        let (flights, sent) = (Flights::default(), Sent::default());
        let mut first = Box::pin(flights.share(WHAT, sent.send()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut leader = Box::pin(flights.share(WHAT, sent.send()));
        let mut member = Box::pin(flights.share(WHAT, sent.send()));
        assert!(leader.as_mut().now_or_never().is_none());
        assert!(member.as_mut().now_or_never().is_none());
        drop(first);
        assert!(leader.as_mut().now_or_never().is_none());
        assert_eq!(sent.count(), 2);
        let mut late = Box::pin(flights.share(WHAT, sent.send()));
        assert!(late.as_mut().now_or_never().is_none());
        drop(leader);
        assert!(member.as_mut().now_or_never().is_none());
        assert!(late.as_mut().now_or_never().is_none());
        assert_eq!(sent.count(), 3, "one at a time, who waited longer first");
        sent.answer(2, Ok(3));
        assert_eq!(late.now_or_never(), Some(Shared::Own(Ok(3))));
        assert!(member.as_mut().now_or_never().is_none());
        sent.answer(2, Ok(4));
        assert_eq!(member.now_or_never(), Some(Shared::Own(Ok(4))));
        assert!(flights.keys.lock().is_empty());
    }

    #[test]
    fn when_the_request_fails_the_others_go_alone() {
        let (flights, sent) = (Flights::default(), Sent::default());
        let mut first = pin!(flights.share(WHAT, sent.send()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut leader = pin!(flights.share(WHAT, sent.send()));
        let mut member = pin!(flights.share(WHAT, sent.send()));
        assert!(leader.as_mut().now_or_never().is_none());
        assert!(member.as_mut().now_or_never().is_none());
        sent.answer(0, Ok(1));
        assert_eq!(first.now_or_never(), Some(Shared::Own(Ok(1))));
        assert!(leader.as_mut().now_or_never().is_none());
        sent.answer(0, Err(()));
        assert_eq!(leader.now_or_never(), Some(Shared::Own(Err(()))));
        assert_eq!(member.now_or_never(), Some(Shared::Alone));
    }

    #[test]
    fn gets_of_other_keys_consistency_or_quorum_share_nothing() {
        let (flights, sent) = (Flights::default(), Sent::default());
        let others = [
            WHAT,
            (Digest([2; 16]), WHAT.1, WHAT.2),
            (WHAT.0, Consistency::Stale, WHAT.2),
            (WHAT.0, WHAT.1, Quorum::All),
        ];
        let mut gets: Vec<_> = others
            .iter()
            .map(|what| Box::pin(flights.share(*what, sent.send())))
            .collect();
        for get in &mut gets {
            assert!(get.as_mut().now_or_never().is_none());
        }
        assert_eq!(sent.count(), 4);
    }
}

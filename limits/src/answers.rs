//! Answers in several messages, through a channel.
//!
//! Such an answer holds memory and a permit until it ends. So it ends when the caller takes none of
//! its messages for a while: HTTP/2 lets a caller keep a stream open without reading it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;
use tonic::Status;
use torc_proto::{Fault, Reason};

/// Why an answer ends early.
#[derive(Debug)]
pub enum Stopped {
    /// It failed.
    Fault(Fault),
    /// The caller has disconnected.
    Gone,
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Sends the messages of an answer.
pub type Messages<T> = mpsc::Sender<Result<T, Status>>;
type Received<T> = mpsc::Receiver<Result<T, Status>>;
/// Room for the fault that ends the answer, so that it need not wait for the caller.
pub type Last<T> = mpsc::OwnedPermit<Result<T, Status>>;

/// A channel that holds this many messages until the caller takes them, and the last fault.
#[must_use]
pub fn channel<T: Send>(messages: usize) -> (Messages<T>, Option<Last<T>>, Received<T>) {
    let (sender, receiver) = mpsc::channel(messages + 1);
    let last = sender.clone().try_reserve_owned();
    // Never fails: the channel is empty.
    (sender, last.ok(), receiver)
}

/// Sends a message, or fails if the caller does not take one for this time.
pub async fn send<T>(
    messages: &Messages<T>,
    message: T,
    idle_time: Duration,
) -> Result<(), Stopped> {
    let sent = messages.send_timeout(Ok(message), idle_time).await;
    sent.map_err(|error| match error {
        SendTimeoutError::Closed(_) => Stopped::Gone,
        SendTimeoutError::Timeout(_) => Stopped::Fault(Fault::new(
            Reason::Deadline,
            format!(
                "the caller read nothing of the answer for {} s, so it ended: ask for the rest again",
                idle_time.as_secs()
            ),
        )),
    })
}

/// Ends the answer with the fault, if there is one.
pub fn end<T>(last: Option<Last<T>>, ended: Result<(), Stopped>) {
    if let (Some(last), Err(Stopped::Fault(fault))) = (last, ended) {
        last.send(Err(fault.into()));
    }
}

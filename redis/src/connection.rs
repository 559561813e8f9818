//! One connection of a Redis client: bytes in, bursts, bytes out.
//!
//! Parses the complete requests that have arrived, runs them as one burst, answers, and continues
//! to read. So a connection has at most one burst in progress, and a client that does not read its
//! answers cannot send more.
//!
//! Limits: a request ([`Limits`], smaller ones before the client has authenticated), the operations
//! of a burst (`burst`), bytes per read. A large request is charged to the node's budget before more
//! of it is read. The first request must start within a minute, and the client must authenticate within
//! a minute if it has to; a request must be complete within [`REQUEST_TIME`] of its start; the client
//! must take answers within [`WRITE_TIME`]. Between requests a connection may stay idle.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Duration, timeout};
use torc_resp::{Limits, Parsed, Parser, ProtocolError, Reply, Version};

use super::burst::Burst;
use super::run;
use super::session::{Session, Step};
use torc_access::caller::Caller;

use crate::{Charge, Server, Socket};

/// Time limit from the first byte of a request to its last.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Time limit for the client to take part of an answer.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Initial and largest space for reading; one long argument may need more.
const READ_AT_ONCE: usize = 8 << 10;
const MOST_AT_ONCE: usize = 64 << 10;
/// A request is charged to the budget from this many bytes on, and in steps of this size. Requests
/// of clients that have not authenticated are not charged: they are shorter, with their headers.
const UNCHARGED: usize = Limits::UNAUTHENTICATED.bytes + 64;
const CHARGED_AT_ONCE: usize = 64 << 10;
/// Answers are written out at this many bytes.
const WRITE_AT_ONCE: usize = 128 << 10;

/// Serves a connection until it ends.
pub(super) async fn serve(
    server: &Arc<Server>,
    stream: Box<dyn Socket>,
    caller: Caller,
    ends: Option<Instant>,
    id: u64,
) -> io::Result<()> {
    let session = Session::new(Arc::clone(server), caller, id);
    let mut served = Served {
        server: Arc::clone(server),
        stream,
        session,
        parser: Parser::new(Limits::default()),
        input: BytesMut::new(),
        output: BytesMut::new(),
        burst: Burst::default(),
        charges: Vec::new(),
        has_begun: None,
        unknown_since: None,
        ends,
    };
    served.run().await
}

struct Served {
    server: Arc<Server>,
    stream: Box<dyn Socket>,
    session: Session,
    parser: Parser,
    input: BytesMut,
    output: BytesMut,
    burst: Burst,
    /// For the part of a large request that has arrived.
    charges: Vec<Charge>,
    /// When the incomplete request began.
    has_begun: Option<Instant>,
    /// Since when the client must authenticate, perhaps again.
    unknown_since: Option<Instant>,
    /// When the connection reaches its maximum age, and is closed between two requests.
    ends: Option<Instant>,
}

impl Served {
    async fn run(&mut self) -> io::Result<()> {
        let first = timeout(self.server.options.idle_time, self.fill()).await;
        let mut is_open = first.map_err(|_| io::ErrorKind::TimedOut)??;
        while is_open {
            is_open = self.answer_all().await? && self.fill().await?;
        }
        Ok(())
    }

    /// Answers all complete requests. Returns false if the connection must end.
    async fn answer_all(&mut self) -> io::Result<bool> {
        loop {
            let step = self.take_requests();
            self.carry_out().await?;
            match step {
                Taken::More => {}
                Taken::All => {
                    // First, other connections whose requests have arrived are read: so a client that one
                    // answer wakes finds those of all its connections.
                    tokio::task::yield_now().await;
                    self.write().await?;
                    return Ok(true);
                }
                Taken::Aside(parsed) => {
                    let version = self.session.version();
                    let (command, reply) = self.session.aside(*parsed).await;
                    self.put(Some(command), version, &reply).await?;
                }
                Taken::End => {
                    self.write().await?;
                    self.stream.shutdown().await?;
                    return Ok(false);
                }
            }
        }
    }

    /// Moves complete requests into the burst.
    fn take_requests(&mut self) -> Taken {
        while !self.burst.is_full() {
            self.parser.set_limits(self.session.limits());
            match self.parser.next(&mut self.input) {
                Ok(None) => return Taken::All,
                Ok(Some(request)) => {
                    self.has_begun = None;
                    match self.session.take(request, &mut self.burst) {
                        Step::On => {}
                        Step::End => return Taken::End,
                        Step::Aside(parsed) => return Taken::Aside(parsed),
                    }
                }
                Err(error) => {
                    self.refuse(&error);
                    return Taken::End;
                }
            }
        }
        Taken::More
    }

    fn refuse(&mut self, error: &ProtocolError) {
        self.server.metrics.protocol_errors.inc();
        let limits = self.session.limits();
        let advice = if limits == Limits::UNAUTHENTICATED {
            let Limits { arguments, bytes } = limits;
            format!(": before AUTH, a request has at most {arguments} arguments and {bytes} bytes")
        } else {
            String::new()
        };
        let reply = Reply::Error(format!("ERR {error}{advice}"));
        self.burst.ready(None, self.session.version(), reply);
    }

    async fn carry_out(&mut self) -> io::Result<()> {
        if self.burst.is_empty() {
            return Ok(());
        }
        let groups = self.burst.take_groups();
        let answers = if groups.is_empty() {
            Vec::new()
        } else {
            run::all(
                &self.server,
                groups,
                Instant::now() + self.server.options.deadline,
            )
            .await
        };
        let replies: Vec<_> = self.burst.replies(answers).collect();
        for due in replies {
            self.put(due.command, due.version, &due.reply).await?;
        }
        Ok(())
    }

    /// Encodes a reply. Writes as soon as there is much to write, also in the midst of an array: the same
    /// value may be in it a thousand times.
    async fn put(
        &mut self,
        command: Option<usize>,
        version: Version,
        reply: &Reply,
    ) -> io::Result<()> {
        self.server.metrics.ended(command, reply);
        let Some(replies) = reply.encode_head(&mut self.output) else {
            return self.encode(version, reply).await;
        };
        for reply in replies {
            self.encode(version, reply).await?;
        }
        Ok(())
    }

    async fn encode(&mut self, version: Version, reply: &Reply) -> io::Result<()> {
        reply.encode(version, &mut self.output);
        if self.output.len() >= WRITE_AT_ONCE {
            self.write().await?;
        }
        Ok(())
    }

    async fn write(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        // Charged without a limit: the answers exist, and clients must get the outcomes of their
        // writes.
        let _charge = self.server.node.force_charge(self.output.len());
        let written = timeout(WRITE_TIME, async {
            self.stream.write_all(&self.output).await?;
            self.stream.flush().await
        });
        written.await.map_err(|_| io::ErrorKind::TimedOut)??;
        if self.output.capacity() > WRITE_AT_ONCE {
            self.output = BytesMut::new();
        } else {
            self.output.clear();
        }
        Ok(())
    }

    /// Reads some bytes. Returns false at the end of input or if the node is stopping.
    async fn fill(&mut self) -> io::Result<bool> {
        let is_amid = self.parser.is_amid(&self.input);
        let begun = is_amid.then(|| *self.has_begun.get_or_insert_with(Instant::now));
        self.has_begun = begun;
        // Also of a client that always has more to read.
        let grace = if is_amid {
            REQUEST_TIME
        } else {
            Duration::ZERO
        };
        let is_unknown = self.session.limits() == Limits::UNAUTHENTICATED;
        let since = is_unknown.then(|| self.unknown_since.unwrap_or_else(Instant::now));
        self.unknown_since = since;
        let ends = since.map(|since| since + self.server.options.idle_time);
        let ends = ends.or(self.ends);
        if ends.is_some_and(|ends| ends + grace <= Instant::now()) {
            return Ok(false);
        }
        let whole_until = begun.map(|begun| begun + REQUEST_TIME);
        self.charge(whole_until).await?;
        let until = whole_until.or(ends);
        let room = self.parser.lacks(&self.input);
        self.input.reserve(room.clamp(READ_AT_ONCE, MOST_AT_ONCE));
        let closing = self.server.closing.clone();
        let reading = async {
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => read,
                // All complete requests have been answered, and no other request has started.
                () = closing.cancelled() => Ok(0),
            }
        };
        let read = match until {
            None => reading.await?,
            Some(until) => match tokio::time::timeout_at(until.into(), reading).await {
                Ok(read) => read?,
                Err(_) if is_amid => return Err(io::ErrorKind::TimedOut.into()),
                Err(_) => 0,
            },
        };
        Ok(read > 0)
    }

    /// Charges the part of a large request that has arrived; waits if the budget has no room.
    async fn charge(&mut self, until: Option<Instant>) -> io::Result<()> {
        let held = self.parser.held() + self.input.len();
        if held <= UNCHARGED {
            self.charges.clear();
            if self.input.is_empty() && self.input.capacity() > MOST_AT_ONCE {
                self.input = BytesMut::new();
            }
            return Ok(());
        }
        let whole = held + self.parser.lacks(&self.input);
        while self.charges.len() * CHARGED_AT_ONCE < held {
            let until = until.unwrap_or_else(|| Instant::now() + REQUEST_TIME);
            let charging = self.server.node.charge(CHARGED_AT_ONCE, whole, until);
            match charging.await {
                Ok(charge) => self.charges.push(charge),
                Err(fault) => {
                    let text = super::errors::text(&fault);
                    let version = self.session.version();
                    self.put(None, version, &Reply::Error(text)).await?;
                    self.write().await?;
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
            }
        }
        Ok(())
    }
}

/// The result of taking requests.
enum Taken {
    /// There may be more complete requests.
    More,
    /// No further request is complete.
    All,
    /// This request must be answered on its own, after those before it.
    Aside(Box<Parsed>),
    /// That was the last request.
    End,
}

//! The peer redis, by RESP 2: one command per connection, MGET and MSET, and pipelines.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::future::LocalBoxFuture;
use torc_testkit::{Process, free_address};

use super::case::{BATCH, Work};
use super::closed_loop::{Sample, closed_loop};
use super::connection::{Connection, Pool, line_end};
use super::data::Data;
use super::server::{self, own_dir};
use super::subject::Subject;
use crate::records::Random;

/// When a write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Never.
    None,
    /// Before the answer: `appendfsync always`.
    Aof,
}

impl Durability {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "redis",
            Self::Aof => "redis+aof",
        }
    }
}

struct Redis {
    process: Process,
    durability: Durability,
    connections: Pool,
}

/// Starts redis, if it is installed.
pub(super) async fn start(dir: &Path, durability: Durability) -> Result<Option<Box<dyn Subject>>> {
    let Some(mut command) = server::command("redis-server")? else {
        return Ok(None);
    };
    let address = free_address()?;
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command
        .args(["--save", "", "--dir"])
        .arg(own_dir(dir, durability.name())?);
    match durability {
        Durability::None => command.args(["--appendonly", "no"]),
        Durability::Aof => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
    };
    Ok(Some(Box::new(Redis {
        process: server::start(&mut command, address).await?,
        durability,
        connections: Pool::new(address, parse),
    })))
}

/// The length of a complete RESP answer: a line, a bulk string, or an array of these.
fn parse(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(header) = line_end(bytes) else {
        return Ok(None);
    };
    let line = std::str::from_utf8(&bytes[..header])?.trim_end();
    let number = |text: &str| text.parse::<i64>().context("redis: a malformed answer");
    match line.split_at_checked(1) {
        Some(("+" | ":", _)) => Ok(Some(header)),
        Some(("$", length)) => {
            let length = usize::try_from(number(length)?).context("redis: a key was not found")?;
            let end = header + length + 2;
            Ok((end <= bytes.len()).then_some(end))
        }
        Some(("*", count)) => {
            let mut end = header;
            for _ in 0..number(count)? {
                match parse(&bytes[end..])? {
                    Some(length) => end += length,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => bail!("redis: {line}"),
    }
}

/// Appends a command.
fn push(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// Appends a command for a record.
type Command = fn(&mut Vec<u8>, &(Bytes, Bytes));

fn get(request: &mut Vec<u8>, (key, _): &(Bytes, Bytes)) {
    push(request, &[b"GET", key]);
}

fn set(request: &mut Vec<u8>, (key, value): &(Bytes, Bytes)) {
    push(request, &[b"SET", key, value]);
}

fn mget(request: &mut Vec<u8>, data: &Data, random: &mut Random) {
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend((0..BATCH).map(|_| &*data.any(random).0));
    push(request, &words);
}

fn mset(request: &mut Vec<u8>, data: &Data, random: &mut Random) {
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    for _ in 0..BATCH {
        let (key, value) = data.any(random);
        words.extend([&**key, &**value]);
    }
    push(request, &words);
}

impl Redis {
    /// Runs the given number of connections with one command each.
    async fn single(
        &self,
        command: Command,
        data: &Data,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        self.each(in_flight, 1, time, |request, random| {
            command(request, data.any(random));
        })
        .await
    }

    /// Runs one connection with the given number of commands in flight.
    async fn pipeline(
        &self,
        command: Command,
        data: &Data,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        let mut random = Random::of(in_flight as u64);
        let mut pool = self.connections.take(1).await?;
        let connection = pool.first_mut().context("no connection")?;
        let push = |requests: &mut Vec<u8>| command(requests, data.any(&mut random));
        connection.keep_in_flight(in_flight, time, push).await
    }

    /// Runs the given number of connections with one command of many keys each.
    async fn batches(
        &self,
        command: fn(&mut Vec<u8>, &Data, &mut Random),
        data: &Data,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        self.each(in_flight, BATCH, time, |request, random| {
            command(request, data, random);
        })
        .await
    }

    async fn each(
        &self,
        connections: usize,
        operations: usize,
        time: Duration,
        fill: impl Fn(&mut Vec<u8>, &mut Random),
    ) -> Result<Sample> {
        let mut pool = self.connections.take(connections).await?;
        let workers = pool
            .iter_mut()
            .take(connections)
            .map(|connection| (connection, Vec::new()));
        let request = async |(connection, request): &mut (&mut Connection, Vec<u8>),
                             random: &mut Random| {
            request.clear();
            fill(request, random);
            connection.exchange(request, 1).await
        };
        closed_loop(workers, operations, time, request).await
    }
}

impl Subject for Redis {
    fn name(&self) -> &'static str {
        self.durability.name()
    }

    fn process(&self) -> Result<u32> {
        Ok(self.process.id())
    }

    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async {
            let mut pool = self.connections.take(1).await?;
            for records in data.all().chunks(BATCH) {
                let mut request = Vec::new();
                for record in records {
                    set(&mut request, record);
                }
                pool[0].exchange(&request, records.len()).await?;
            }
            Ok(())
        })
    }

    fn run<'a>(
        &'a self,
        work: Work,
        data: &'a Data,
        time: Duration,
    ) -> LocalBoxFuture<'a, Result<Option<Sample>>> {
        Box::pin(async move {
            let sample = match work {
                Work::Get { in_flight } => self.single(get, data, in_flight, time).await,
                Work::Put { in_flight } => self.single(set, data, in_flight, time).await,
                Work::GetBatches { in_flight } => self.batches(mget, data, in_flight, time).await,
                Work::PutBatches { in_flight } => self.batches(mset, data, in_flight, time).await,
                Work::StreamGets { in_flight } => self.pipeline(get, data, in_flight, time).await,
                Work::StreamPuts { in_flight } => self.pipeline(set, data, in_flight, time).await,
            };
            sample.map(Some)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_at_its_last_byte_and_not_before() {
        for answer in [
            "+OK\r\n",
            ":1\r\n",
            "$3\r\nabc\r\n",
            "*2\r\n$1\r\na\r\n$0\r\n\r\n",
        ] {
            let bytes = format!("{answer}+OK\r\n");
            assert_eq!(
                parse(bytes.as_bytes()).unwrap(),
                Some(answer.len()),
                "{answer:?}"
            );
            for cut in 0..answer.len() {
                assert_eq!(
                    parse(&answer.as_bytes()[..cut]).unwrap(),
                    None,
                    "{answer:?} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn errors_and_absent_keys_are_errors() {
        assert!(parse(b"-ERR no\r\n").is_err());
        assert!(parse(b"$-1\r\n").is_err());
        assert!(parse(b"*1\r\n$-1\r\n").is_err());
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut request = Vec::new();
        push(&mut request, &[b"GET", b"key"]);
        assert_eq!(request, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    }
}

//! Servers of the Redis protocol, by RESP 2: the peer redis, and nodes of Torc.
//!
//! One client drives both, and compares each answer with the expected one, byte for byte. (Of a
//! stream it checks only that the key was found.)

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::future::LocalBoxFuture;
use torc_testkit::{Kvd, Process, free_address};

use super::case::{BATCH, Work};
use super::closed_loop::{Sample, closed_loop};
use super::connection::{Connection, Pool, line_end};
use super::data::Data;
use super::server::{self, own_dir};
use super::subject::Subject;
use crate::process;
use crate::records::Random;
use crate::report::TORC;

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

/// Servers, and a client of them.
pub(super) struct Redis {
    name: &'static str,
    servers: Vec<Server>,
    connections: Pool,
}

enum Server {
    Redis(Process),
    Torc(Box<Kvd>),
}

impl Server {
    fn id(&self) -> Result<u32> {
        match self {
            Self::Redis(process) => Ok(process.id()),
            Self::Torc(node) => Ok(node.pid()?),
        }
    }
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
    let process = server::start(&mut command, address).await?;
    Ok(Some(Box::new(Redis {
        name: durability.name(),
        servers: vec![Server::Redis(process)],
        connections: Pool::new(vec![address], parse),
    })))
}

/// Nodes of Torc, which serve.
pub(super) fn of_nodes(nodes: Vec<Kvd>) -> Redis {
    let addresses = nodes.iter().map(|node| node.resp).collect();
    Redis {
        name: TORC,
        servers: nodes
            .into_iter()
            .map(|node| Server::Torc(Box::new(node)))
            .collect(),
        connections: Pool::new(addresses, parse),
    }
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

/// Commands, and the answers to them.
#[derive(Default)]
struct Exchange {
    requests: Vec<u8>,
    answers: Vec<u8>,
}

/// Appends a command of one or more records, and its answer.
type Command = fn(&mut Exchange, &[&(Bytes, Bytes)]);

fn get(exchange: &mut Exchange, records: &[&(Bytes, Bytes)]) {
    for (key, value) in records {
        push(&mut exchange.requests, &[b"GET", key]);
        push_bulk(&mut exchange.answers, value);
    }
}

fn set(exchange: &mut Exchange, records: &[&(Bytes, Bytes)]) {
    for (key, value) in records {
        push(&mut exchange.requests, &[b"SET", key, value]);
        exchange.answers.extend_from_slice(OK);
    }
}

fn mget(exchange: &mut Exchange, records: &[&(Bytes, Bytes)]) {
    let keys = records.iter().map(|(key, _)| &**key);
    let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys).collect();
    push(&mut exchange.requests, &words);
    let values: Vec<&[u8]> = records.iter().map(|(_, value)| &**value).collect();
    push(&mut exchange.answers, &values);
}

fn mset(exchange: &mut Exchange, records: &[&(Bytes, Bytes)]) {
    let pairs = records.iter().flat_map(|(key, value)| [&**key, &**value]);
    let words: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
    push(&mut exchange.requests, &words);
    exchange.answers.extend_from_slice(OK);
}

const OK: &[u8] = b"+OK\r\n";

/// Appends an array of bulk strings.
fn push(bytes: &mut Vec<u8>, words: &[&[u8]]) {
    push_header(bytes, b'*', words.len());
    for word in words {
        push_bulk(bytes, word);
    }
}

fn push_bulk(bytes: &mut Vec<u8>, word: &[u8]) {
    push_header(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

fn push_header(bytes: &mut Vec<u8>, kind: u8, number: usize) {
    bytes.push(kind);
    // Writing to a Vec cannot fail.
    let _ = write!(bytes, "{number}\r\n");
}

impl Redis {
    /// Runs connections that send commands of `keys` keys together.
    async fn each(
        &self,
        command: Command,
        data: &Data,
        connections: usize,
        keys: usize,
        time: Duration,
    ) -> Result<Sample> {
        let mut pool = self.connections.take(connections).await?;
        let workers = pool.iter_mut().take(connections);
        let workers = workers.map(|connection| (connection, Exchange::default()));
        let request = async |(connection, exchange): &mut (&mut Connection, Exchange),
                             random: &mut Random| {
            exchange.requests.clear();
            exchange.answers.clear();
            let records: Vec<_> = (0..keys).map(|_| data.any(random)).collect();
            command(exchange, &records);
            let Exchange { requests, answers } = exchange;
            connection.exchange_for(requests, answers).await
        };
        closed_loop(workers, keys, time, request).await
    }

    /// Runs one connection with the given number of commands in flight.
    async fn stream(
        &self,
        command: Command,
        data: &Data,
        in_flight: usize,
        time: Duration,
    ) -> Result<Sample> {
        let mut random = Random::of(in_flight as u64);
        let mut pool = self.connections.take(1).await?;
        let connection = pool.first_mut().context("no connection")?;
        let mut exchange = Exchange::default();
        let push = |requests: &mut Vec<u8>| {
            exchange.requests.clear();
            command(&mut exchange, &[data.any(&mut random)]);
            requests.append(&mut exchange.requests);
        };
        connection.keep_in_flight(in_flight, time, push).await
    }
}

impl Subject for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self) -> Result<u32> {
        self.servers.first().context("no server")?.id()
    }

    fn cpu_time(&self) -> Result<Duration> {
        let each = self.servers.iter();
        each.map(|server| process::cpu_time(server.id()?)).sum()
    }

    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async {
            let mut pool = self.connections.take(1).await?;
            for records in data.all().chunks(BATCH) {
                let mut exchange = Exchange::default();
                set(&mut exchange, &records.iter().collect::<Vec<_>>());
                let Exchange { requests, answers } = exchange;
                pool[0].exchange_for(&requests, &answers).await?;
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
            let (command, connections, keys): (Command, _, _) = match work {
                Work::Get { in_flight } => (get, in_flight, 1),
                Work::Put { in_flight } => (set, in_flight, 1),
                Work::GetBatches { in_flight } => (mget, in_flight, BATCH),
                Work::PutBatches { in_flight } => (mset, in_flight, BATCH),
                Work::PipelinedGets { connections, depth } => (get, connections, depth),
                Work::PipelinedPuts { connections, depth } => (set, connections, depth),
                Work::StreamGets { in_flight } => {
                    return self.stream(get, data, in_flight, time).await.map(Some);
                }
                Work::StreamPuts { in_flight } => {
                    return self.stream(set, data, in_flight, time).await.map(Some);
                }
            };
            let sample = self.each(command, data, connections, keys, time).await;
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
    fn commands_and_their_answers_are_arrays_of_bulk_strings() {
        let record = (Bytes::from_static(b"key"), Bytes::from_static(b"v"));
        let told = |command: Command, records: &[&(Bytes, Bytes)]| {
            let mut exchange = Exchange::default();
            command(&mut exchange, records);
            [exchange.requests, exchange.answers].map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(
            told(get, &[&record]),
            ["*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", "$1\r\nv\r\n"]
        );
        assert_eq!(
            told(set, &[&record]),
            ["*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\nv\r\n", "+OK\r\n"]
        );
        let [asked, answered] = told(mget, &[&record, &record]);
        assert!(asked.starts_with("*3\r\n$4\r\nMGET\r\n$3\r\nkey\r\n"));
        assert_eq!(answered, "*2\r\n$1\r\nv\r\n$1\r\nv\r\n");
        assert_eq!(told(mset, &[&record])[1], "+OK\r\n");
    }
}

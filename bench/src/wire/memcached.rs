//! The peer memcached, by its text protocol: get, set, and gets of many keys.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::LocalBoxFuture;
use torc_testkit::{Process, free_address};

use super::case::{BATCH, Work};
use super::closed_loop::{Sample, closed_loop};
use super::connection::{Connection, Pool, line_end};
use super::data::Data;
use super::server;
use super::subject::Subject;
use crate::records::Random;

/// The peer's name in reports.
pub(super) const NAME: &str = "memcached";

struct Memcached {
    process: Process,
    connections: Pool,
}

/// Starts memcached with one worker thread, if it is installed.
pub(super) async fn start() -> Result<Option<Box<dyn Subject>>> {
    let Some(mut command) = server::command(NAME)? else {
        return Ok(None);
    };
    let address = free_address()?;
    command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
    command.args([
        "-U", "0", "-t", "1", "-m", "4096", "-c", "1024", "-u", "root",
    ]);
    Ok(Some(Box::new(Memcached {
        process: server::start(&mut command, address).await?,
        connections: Pool::new(vec![address], parse),
    })))
}

/// The length of a complete answer: `STORED`, or values up to `END`.
fn parse(bytes: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    while let Some(line) = line_end(&bytes[at..]) {
        let text = std::str::from_utf8(&bytes[at..at + line])?.trim_end();
        at += line;
        match text.split(' ').next() {
            Some("STORED") => return Ok(Some(at)),
            Some("END") if at > line => return Ok(Some(at)),
            Some("END") => bail!("memcached: a key was not found"),
            Some("VALUE") => {
                let length = text
                    .rsplit(' ')
                    .next()
                    .and_then(|text| text.parse::<usize>().ok());
                at += length.context("memcached: a malformed answer")? + 2;
                if at > bytes.len() {
                    return Ok(None);
                }
            }
            _ => bail!("memcached: {text}"),
        }
    }
    Ok(None)
}

fn get(request: &mut Vec<u8>, data: &Data, random: &mut Random, keys: usize) {
    request.extend_from_slice(b"get");
    for _ in 0..keys {
        request.push(b' ');
        request.extend_from_slice(&data.any(random).0);
    }
    request.extend_from_slice(b"\r\n");
}

fn set(request: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    request.extend_from_slice(b"set ");
    request.extend_from_slice(key);
    request.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
}

impl Memcached {
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

impl Subject for Memcached {
    fn name(&self) -> &'static str {
        NAME
    }

    fn process(&self) -> Result<u32> {
        Ok(self.process.id())
    }

    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async {
            let mut pool = self.connections.take(1).await?;
            for records in data.all().chunks(BATCH) {
                let mut request = Vec::new();
                for (key, value) in records {
                    set(&mut request, key, value);
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
            let put = |request: &mut Vec<u8>, random: &mut Random| {
                let (key, value) = data.any(random);
                set(request, key, value);
            };
            let sample = match work {
                Work::Get { in_flight } => {
                    self.each(in_flight, 1, time, |request, random| {
                        get(request, data, random, 1);
                    })
                    .await
                }
                Work::Put { in_flight } => self.each(in_flight, 1, time, put).await,
                Work::GetBatches { in_flight } => {
                    let fill = |request: &mut Vec<u8>, random: &mut Random| {
                        get(request, data, random, BATCH);
                    };
                    self.each(in_flight, BATCH, time, fill).await
                }
                _ => return Ok(None),
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
            "STORED\r\n",
            "VALUE k 0 3\r\nEND\r\nEND\r\n",
            "VALUE a 0 1\r\nx\r\nVALUE b 0 0\r\n\r\nEND\r\n",
        ] {
            assert_eq!(
                parse(answer.as_bytes()).unwrap(),
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
        assert!(parse(b"END\r\n").is_err());
        assert!(parse(b"SERVER_ERROR out of memory\r\n").is_err());
    }
}

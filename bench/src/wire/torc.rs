//! Torc: one kvd, driven through the client library and through its own streams.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use torc_client::Client;
use torc_testkit::Kvd;

use super::SERVER_CORE;
use super::case::{BATCH, Work};
use super::closed_loop::{Sample, closed_loop};
use super::data::Data;
use super::session::Sessions;
use super::subject::Subject;
use crate::kvd::{self, Replicas};
use crate::machine;
use crate::records::Random;

/// Batches in flight while loading.
const LOADING: usize = 8;

pub(super) struct Torc {
    replicas: Replicas,
    node: Kvd,
    client: Client,
    sessions: Sessions,
}

impl Torc {
    /// Founds a cluster of one node.
    pub(super) async fn start(program: &Path, dir: &Path, replicas: Replicas) -> Result<Self> {
        let dir = dir.join(replicas.subject());
        let mut node = kvd::alone(program, &dir, &replicas.settings())?;
        machine::on_core(SERVER_CORE, || node.start())??;
        node.ready().await?;
        let client = Client::connect([node.endpoint()]).await?;
        let sessions = Sessions::connect(&client, node.endpoint()).await?;
        Ok(Self {
            replicas,
            node,
            client,
            sessions,
        })
    }

    async fn get(&self, data: &Data, in_flight: usize, time: Duration) -> Result<Sample> {
        closed_loop(0..in_flight, 1, time, async |_, random| {
            let found = self.client.get(data.any(random).0.clone()).await?;
            anyhow::ensure!(found.is_some(), "a key was not found");
            Ok(())
        })
        .await
    }

    async fn put(&self, data: &Data, in_flight: usize, time: Duration) -> Result<Sample> {
        closed_loop(0..in_flight, 1, time, async |_, random| {
            let (key, value) = data.any(random).clone();
            self.client.put(key, value).await?;
            Ok(())
        })
        .await
    }

    async fn get_batches(&self, data: &Data, in_flight: usize, time: Duration) -> Result<Sample> {
        closed_loop(0..in_flight, BATCH, time, async |_, random| {
            let keys: Vec<Bytes> = (0..BATCH).map(|_| data.any(random).0.clone()).collect();
            for found in self.client.batch_get(keys).await? {
                anyhow::ensure!(found?.is_some(), "a key was not found");
            }
            Ok(())
        })
        .await
    }

    async fn put_batches(&self, data: &Data, in_flight: usize, time: Duration) -> Result<Sample> {
        closed_loop(0..in_flight, BATCH, time, async |_, random: &mut Random| {
            let records: Vec<_> = (0..BATCH).map(|_| data.any(random).clone()).collect();
            put_all(&self.client, records).await
        })
        .await
    }
}

async fn put_all(client: &Client, records: Vec<(Bytes, Bytes)>) -> Result<()> {
    for stored in client.batch_put(records).await? {
        stored?;
    }
    Ok(())
}

impl Subject for Torc {
    fn name(&self) -> &'static str {
        self.replicas.subject()
    }

    fn process(&self) -> Result<u32> {
        Ok(self.node.pid()?)
    }

    fn load<'a>(&'a self, data: &'a Data) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async {
            let batches = data.all().chunks(500);
            let puts = batches.map(|records| put_all(&self.client, records.to_vec()));
            let mut puts = futures::stream::iter(puts).buffer_unordered(LOADING);
            while let Some(done) = puts.next().await {
                done?;
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
                Work::Get { in_flight } => self.get(data, in_flight, time).await,
                Work::Put { in_flight } => self.put(data, in_flight, time).await,
                Work::GetBatches { in_flight } => self.get_batches(data, in_flight, time).await,
                Work::PutBatches { in_flight } => self.put_batches(data, in_flight, time).await,
                Work::StreamGets { in_flight } => self.sessions.gets(data, in_flight, time).await,
                Work::StreamPuts { in_flight } => self.sessions.puts(data, in_flight, time).await,
                Work::PipelinedGets { .. } | Work::PipelinedPuts { .. } => return Ok(None),
            };
            sample.map(Some)
        })
    }
}

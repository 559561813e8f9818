//! Unary gets, as sent by any gRPC client: without digest and route.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;
use torc_proto::v1::{GetRequest, GetResponse};

use super::closed_loop::{Sample, closed_loop};
use crate::process;
use crate::records::Random;

pub(super) const IN_FLIGHT: usize = 64;
/// Connections, as many as Torc's client has.
pub(super) const CHANNELS: usize = 4;
pub(super) const GET: PathAndQuery = PathAndQuery::from_static("/torc.v1.Kv/Get");

/// A server, its connections, and the gets to send.
pub(super) struct Gets {
    pub(super) process: u32,
    pub(super) channels: Vec<Channel>,
    pub(super) path: PathAndQuery,
    /// The `authorization` header of each call.
    pub(super) token: Option<AsciiMetadataValue>,
    pub(super) keys: u64,
    pub(super) value_bytes: u32,
}

impl Gets {
    /// Gets random keys for `time`. Returns the sample and the server's processor time per get,
    /// microseconds.
    ///
    /// # Errors
    /// A call fails, or a value is missing or has an unexpected length.
    pub(super) async fn measure(&self, time: Duration) -> Result<(Sample, f64)> {
        let workers = || {
            let clients = self.channels.iter().cloned().map(Grpc::new);
            clients.cycle().take(IN_FLIGHT)
        };
        let call = async |grpc: &mut Grpc<Channel>, random: &mut Random| {
            let request = GetRequest {
                key: key(random.below(self.keys)).into(),
                ..GetRequest::default()
            };
            grpc.ready().await?;
            let codec = ProstCodec::<GetRequest, GetResponse>::default();
            let mut asked = tonic::Request::new(request);
            if let Some(token) = &self.token {
                asked.metadata_mut().insert("authorization", token.clone());
            }
            let answer = grpc.unary(asked, self.path.clone(), codec).await?;
            let answer = answer.get_ref();
            ensure!(answer.found, "a key was not found");
            let length = answer.value.len();
            ensure!(
                length == self.value_bytes as usize,
                "a value of {length} bytes"
            );
            Ok(())
        };
        measured(self.process, time, async |time| {
            closed_loop(workers(), 1, time, &call).await
        })
        .await
    }
}

/// Runs a loop for a tenth of `time`, then for `time`. Returns the second sample and the server's
/// processor time per operation in it, microseconds.
///
/// # Errors
/// Errors of the loop; the process has ended.
pub(super) async fn measured(
    process: u32,
    time: Duration,
    run: impl AsyncFn(Duration) -> Result<Sample>,
) -> Result<(Sample, f64)> {
    run(time / 10).await?;
    let before = process::cpu_time(process)?;
    let sample = run(time).await?;
    let spent = process::cpu_time(process)?.saturating_sub(before);
    let cost = spent.as_secs_f64() * 1e6 / sample.operations.max(1) as f64;
    Ok((sample, cost))
}

/// The key with a number, named as in `kvctl bench`.
pub(super) fn key(number: u64) -> String {
    format!("bench-{number:012}")
}

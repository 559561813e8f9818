//! Reads single objects of the Kubernetes API with the pod's service account.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use torc_tls::ClientTls;
use tower_service::Service as _;

use crate::failure::Failure;

/// The time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Kubernetes stores objects of up to 1.5 MiB; their JSON may be larger.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Why there is no answer. All requests are reads: nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("not in a Kubernetes pod: {0} is not set")]
    NoKubernetes(&'static str),
    #[error("cannot read {}: {source}", .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Tls(#[from] torc_tls::TlsError),
    #[error("Kubernetes did not answer GET {path}: {why}")]
    Unreachable { path: String, why: String },
    #[error(
        "Kubernetes refused GET {path} with {status}: give the pod's service account the right to get it"
    )]
    Refused {
        path: String,
        status: http::StatusCode,
    },
    #[error("unexpected answer of Kubernetes to GET {path}")]
    Malformed { path: String },
}

impl ApiError {
    /// Whether a retry may help.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => status.is_server_error() || status.as_u16() == 429,
            Self::NoKubernetes(_) | Self::File { .. } | Self::Tls(_) | Self::Malformed { .. } => {
                false
            }
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Kubernetes(error.to_string())
    }
}

pub(super) struct Api {
    account: PathBuf,
}

impl Api {
    pub(super) fn new(account: &Path) -> Self {
        Self {
            account: account.to_owned(),
        }
    }

    /// Fetches the object at this path. Reads token and authority each time, because Kubernetes
    /// replaces them.
    pub(super) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let unreachable = |why: String| ApiError::Unreachable {
            path: path.to_owned(),
            why,
        };
        let asked = tokio::time::timeout(TIMEOUT, self.ask(path)).await;
        let (status, body) = asked
            .map_err(|_| unreachable(format!("no answer within {} s", TIMEOUT.as_secs())))??;
        if !status.is_success() {
            let path = path.to_owned();
            return Err(ApiError::Refused { path, status });
        }
        let malformed = |_| ApiError::Malformed {
            path: path.to_owned(),
        };
        serde_json::from_slice(&body).map_err(malformed)
    }

    async fn ask(&self, path: &str) -> Result<(http::StatusCode, Bytes), ApiError> {
        let unreachable = |why: String| ApiError::Unreachable {
            path: path.to_owned(),
            why,
        };
        let variable = |name| std::env::var(name).map_err(|_| ApiError::NoKubernetes(name));
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host
        };
        let address: http::Uri = format!("https://{host}:{port}{path}")
            .parse()
            .map_err(|error: http::uri::InvalidUri| unreachable(error.to_string()))?;
        let token = self.read("token")?;
        let tls = ClientTls::trusting(&self.read("ca.crt")?, &self.account.join("ca.crt"))?;
        let connected = tls.connector().call(address.clone()).await;
        let connected = connected.map_err(|error| unreachable(error.to_string()))?;
        let failed = |error: hyper::Error| unreachable(error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), connected)
                .await
                .map_err(failed)?;
        // Ends with the sender.
        tokio::spawn(connection);
        let request = http::Request::get(address)
            .header(
                http::header::AUTHORIZATION,
                format!("Bearer {}", token.trim()),
            )
            .header(http::header::ACCEPT, "application/json")
            .body(Empty::<Bytes>::new())
            .map_err(|error| unreachable(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES);
        let body = body.collect().await;
        let body = body.map_err(|error| unreachable(error.to_string()))?;
        Ok((status, body.to_bytes()))
    }

    fn read(&self, name: &str) -> Result<String, ApiError> {
        let path = self.account.join(name);
        std::fs::read_to_string(&path).map_err(|source| ApiError::File { path, source })
    }
}

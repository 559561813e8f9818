//! Getting into a secure cluster with a join token: the newcomer's side.
//!
//! The newcomer believes nothing before the other node has shown the authority whose digest is in the token, and a
//! certificate of it. Its own key stays here. What it gets is written down before anything else begins; killed before
//! that, it asks again with the same token and the same key, and gets the same.

use std::time::{Duration, Instant};

use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::{EnrolNodeRequest, EnrolNodeResponse};
use torc_proto::{Fault, Reason};
use torc_tls::{Introduction, IntroductionError, JoinToken, Trust};

use crate::tls_dir::{Admitted, TlsDir, TlsDirError};

const CONNECT_TIME: Duration = Duration::from_secs(3);
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long a cluster that cannot answer now is asked again.
const TRY_FOR: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Why a node was not let into a cluster. Nothing was changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// Nobody could be asked, or somebody else answers.
    #[error(transparent)]
    Introduction(#[from] IntroductionError),
    /// The cluster refuses.
    #[error("the cluster at {address} does not let this node in: {fault}")]
    Refused {
        /// Who was asked.
        address: String,
        /// Why.
        fault: Fault,
    },
    /// The cluster's answer cannot be written or used. The token was used: start again with it, and this node gets in.
    #[error(transparent)]
    Directory(#[from] TlsDirError),
    /// The node's key cannot be used.
    #[error("no certificate can be asked for: {0}")]
    Tls(String),
}

/// Asks to be let in, and writes down what it gets.
pub(crate) async fn enrol(
    dir: &TlsDir,
    token: &JoinToken,
    names: &[String],
) -> Result<(), EnrolError> {
    let key = dir.key()?;
    let signing_request = key.request();
    let signing_request = signing_request.map_err(|error| EnrolError::Tls(error.to_string()))?;
    let request = EnrolNodeRequest {
        token: token.token.bearer.reveal(),
        signing_request,
        names: names.to_vec(),
    };
    let give_up = Instant::now() + TRY_FOR;
    let answer = loop {
        match ask(token, &request).await {
            Err(error) if may_pass(&error) && Instant::now() < give_up => {
                tracing::info!(%error, "not let in yet; trying again");
                tokio::time::sleep(TRY_AGAIN).await;
            }
            answer => break answer?,
        }
    };
    dir.accept(&Admitted {
        certificate: answer.certificate,
        authority: answer.authority,
        authority_key: answer.authority_key,
    })?;
    tracing::info!(address = token.address, "let into a cluster");
    Ok(())
}

/// Asking again is harmless, whatever became of it the first time.
fn may_pass(error: &EnrolError) -> bool {
    match error {
        EnrolError::Introduction(error) => matches!(error, IntroductionError::Unreachable { .. }),
        EnrolError::Refused { fault, .. } => fault.maybe_applied || fault.is_retryable(),
        EnrolError::Directory(_) | EnrolError::Tls(_) => false,
    }
}

async fn ask(
    token: &JoinToken,
    request: &EnrolNodeRequest,
) -> Result<EnrolNodeResponse, EnrolError> {
    let address = &token.address;
    let trust = Trust::Digest(token.token.authority);
    let (channel, _) = Introduction::meet(address, trust, CONNECT_TIME).await?;
    let mut request = tonic::Request::new(request.clone());
    request.set_timeout(ANSWER_TIME);
    let answer = ClusterClient::new(channel).enrol_node(request).await;
    let answer = answer.map_err(|status| EnrolError::Refused {
        address: address.clone(),
        fault: Fault::from_status(&status),
    })?;
    let answer = answer.into_inner();
    // The authority vouched for this connection; what it carries is still looked at when it is written down.
    let is_told = [
        &answer.certificate,
        &answer.authority,
        &answer.authority_key,
    ];
    if is_told.iter().any(|text| text.is_empty()) {
        let message = "the answer lacks a part: let all nodes run one release";
        return Err(EnrolError::Refused {
            address: address.clone(),
            fault: Fault::new(Reason::Internal, message),
        });
    }
    Ok(answer)
}

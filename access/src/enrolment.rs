//! Joins a secure cluster with a join token: the new node's side.
//!
//! The new node first verifies that the other node presents the authority whose digest is in the
//! token, and a certificate of that authority. Its own private key never leaves it. It stores the
//! answer before it does anything else; if it is killed earlier, it asks again with the same token
//! and key, and gets the same answer.

use std::time::{Duration, Instant};

use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::{EnrolNodeRequest, EnrolNodeResponse};
use torc_proto::{Fault, Reason};
use torc_tls::{Introduction, IntroductionError, JoinToken, Trust};

use crate::tls_dir::{Admitted, TlsDir, TlsDirError};

const CONNECT_TIME: Duration = Duration::from_secs(3);
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Time for which a cluster that cannot answer is asked again.
const TRY_FOR: Duration = Duration::from_secs(20);
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Why a node was not admitted to a cluster. Nothing was changed, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// No node answered, or the answer came from another cluster.
    #[error(transparent)]
    Introduction(#[from] IntroductionError),
    /// The cluster refused.
    #[error("the cluster at {address} refused this node: {fault}")]
    Refused {
        /// Address of the node that refused.
        address: String,
        /// The reason.
        fault: Fault,
    },
    /// The cluster's answer cannot be stored or used. The token has been used: restart the node
    /// with the same token to be admitted.
    #[error(transparent)]
    Directory(#[from] TlsDirError),
    /// The node's key cannot be used.
    #[error("cannot request a certificate: {0}")]
    Tls(String),
}

/// Requests admission, and stores the answer.
pub async fn enrol(dir: &TlsDir, token: &JoinToken, names: &[String]) -> Result<(), EnrolError> {
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
                tracing::info!(%error, "the cluster has not accepted this node yet; retrying");
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
    tracing::info!(address = token.address, "accepted by the cluster");
    Ok(())
}

/// Retrying is harmless, whatever the first attempt did.
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
    // The authority has authenticated this connection; the content is checked when it is stored.
    let is_told = [
        &answer.certificate,
        &answer.authority,
        &answer.authority_key,
    ];
    if is_told.iter().any(|text| text.is_empty()) {
        let message = "the answer is incomplete: run the same release on all nodes";
        return Err(EnrolError::Refused {
            address: address.clone(),
            fault: Fault::new(Reason::Internal, message),
        });
    }
    Ok(answer)
}

//! The first tokens of a secure cluster, which its founder prints once.

use std::time::{Duration, Instant};

use torc_access::tls_dir::OwnAuthority;
use torc_proto::v1::{CreateTokenRequest, CreateTokenResponse};
use torc_proto::{Fault, Reason};
use torc_ring::topology::Role;
use torc_tls::{JoinToken, PinnedToken};

use torc_record::to_millis;

use crate::cluster::{ClusterNode, issuer_of, tokens};

const PROPOSE_TIME: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// Lifetime of the first join token.
const JOIN_TIME: Duration = Duration::from_secs(3_600);

/// The credentials for a new secure cluster. `Debug` does not show the secrets.
#[derive(Debug, Clone)]
pub struct FirstUse {
    /// Grants everything, until it is revoked.
    pub admin: PinnedToken,
    /// Admits one node.
    pub join: JoinToken,
}

/// Creates the tokens once the cluster serves, if they have not been printed yet.
pub(crate) async fn tokens(node: &ClusterNode) -> Option<FirstUse> {
    let own = node.own_authority.as_deref()?;
    if !own.dir.is_first_use() {
        return None;
    }
    loop {
        if node.ready().is_ok() {
            match create(node, own).await {
                Ok(first) => return Some(first),
                Err(fault) => {
                    tracing::warn!(%fault, "could not create the first tokens yet; retrying");
                }
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn create(node: &ClusterNode, own: &OwnAuthority) -> Result<FirstUse, Fault> {
    let admin = CreateTokenRequest {
        name: "first-admin".to_owned(),
        roles: vec![Role::Admin.to_string()],
        ..CreateTokenRequest::default()
    };
    let join = CreateTokenRequest {
        name: "first-join".to_owned(),
        join_uses: 1,
        lifetime_ms: to_millis(JOIN_TIME),
        ..CreateTokenRequest::default()
    };
    let deadline = || Instant::now() + PROPOSE_TIME;
    let admin = tokens::create(node, admin, deadline()).await?;
    let join = tokens::create(node, join, deadline()).await?;
    let authority = issuer_of(own)?;
    let pinned = |created: &CreateTokenResponse| {
        let bearer = created.bearer.parse();
        let bearer = bearer.map_err(|_| Fault::new(Reason::Internal, "a token: report this"));
        bearer.map(|bearer| PinnedToken { bearer, authority })
    };
    Ok(FirstUse {
        admin: pinned(&admin)?,
        join: JoinToken {
            token: pinned(&join)?,
            address: join.address,
        },
    })
}

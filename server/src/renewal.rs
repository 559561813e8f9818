//! Reloads replaced certificates while the node serves, renews them if the cluster has its own
//! authority, and warns before one expires.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use torc_access::tls_dir::{OwnAuthority, TlsDirError};
use torc_group::TopologyGroup;
use torc_member::LocalMember;
use torc_tls::NodeTls;

use crate::rotation::Turn;

/// Interval at which the files are read.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A warning is logged, and `/readyz` tells, this long before a certificate expires.
pub(crate) const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(100);
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The time until this node's certificate expires.
pub(crate) fn left(tls: &NodeTls) -> Duration {
    let left = tls.expires().duration_since(SystemTime::now());
    left.unwrap_or_default()
}

/// Whole days.
pub(crate) const fn days(left: Duration) -> u64 {
    left.as_secs() / (24 * 3600)
}

/// Renews the node's certificate if it is due. Returns the time until it is due again.
fn renew_if_due(own: &OwnAuthority) -> Result<Duration, TlsDirError> {
    let fresh_for = own.fresh_for()?;
    if !fresh_for.is_zero() {
        return Ok(fresh_for);
    }
    own.renew()?;
    tracing::info!("renewed this node's certificate");
    own.fresh_for()
}

/// What renewing certificates needs of a node.
pub(crate) struct Renewal {
    pub(crate) member: Arc<LocalMember>,
    pub(crate) group: TopologyGroup,
    /// `None` if certificates come from files.
    pub(crate) own_authority: Option<Arc<OwnAuthority>>,
    /// Counts replaced files that could not be used.
    pub(crate) files_refused: Counter,
    /// Unix time, in seconds, when the certificate expires.
    pub(crate) certificate_end: Gauge,
}

/// Puts replaced files into use. Logs files that cannot be used once, and keeps using the former
/// ones.
pub(crate) async fn run(node: Renewal, tls: Arc<NodeTls>) {
    let (mut told, mut warned): (Option<String>, Option<Instant>) = (None, None);
    loop {
        let (reading, own) = (Arc::clone(&tls), node.own_authority.clone());
        let turn = match own.clone() {
            Some(own) => Turn::of(own, &node.member, &node.group).await,
            None => None,
        };
        let turning = turn.clone();
        let read = tokio::task::spawn_blocking(move || {
            let followed = turning.zip(own.as_deref()).map(|(it, own)| it.follow(own));
            let follows = followed.transpose().map_err(|error| error.to_string())?;
            let fresh_for = own.as_deref().map_or(Ok(LOOK_EVERY), renew_if_due);
            let fresh_for = fresh_for.map_err(|error| error.to_string())?;
            let is_new = reading.reload().map_err(|error| error.to_string())?;
            Ok((is_new, fresh_for, follows))
        });
        // Fails only if the reader panics.
        let read = read.await.unwrap_or(Ok((false, LOOK_EVERY, None)));
        let mut fresh_for = read.as_ref().map_or(LOOK_EVERY, |(_, time, _)| *time);
        if let Some(turn) = turn {
            // The renewed certificate is on disk and in use.
            if let Ok((_, _, Some(true))) = read {
                turn.done(&node.member, &node.group).await;
            }
            fresh_for = fresh_for.min(turn.look_again());
        }
        match read.map(|(is_new, _, _)| is_new) {
            Ok(true) => {
                tracing::info!("new connections use the replaced certificate files");
                (told, warned) = (None, None);
            }
            Ok(false) => told = None,
            Err(error) if told.as_ref() != Some(&error) => {
                node.files_refused.inc();
                tracing::warn!(%error, "cannot use the certificate files: the former ones stay in use");
                told = Some(error);
            }
            Err(_) => {}
        }
        let end = tls.expires();
        let since_epoch = end.duration_since(UNIX_EPOCH).unwrap_or_default();
        node.certificate_end
            .set(since_epoch.as_secs().cast_signed());
        let left = left(&tls);
        let is_due = warned.is_none_or(|at| at.elapsed() > WARN_EVERY);
        if left < WARN_BEFORE && is_due {
            let days = days(left);
            let advice = match &node.own_authority {
                None => "replace its files",
                Some(_) => "the node could not renew it, see the warning above",
            };
            tracing::warn!(days, "this node's certificate expires soon: {advice}");
            warned = Some(Instant::now());
        }
        tokio::time::sleep(fresh_for.clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY)).await;
    }
}

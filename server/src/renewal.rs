//! Reloads replaced certificates while the node serves, renews them if the cluster has its own
//! authority, and warns before one expires.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use torc_tls::NodeTls;

use crate::rotation::Turn;
use crate::shared::Shared;
use crate::tls_dir::{OwnAuthority, TlsDirError};

/// How often the files are read.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long before its end a certificate is warned of.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(100);
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Renews the node's certificate once it is due. Returns for how long it is not.
fn renew_if_due(own: &OwnAuthority) -> Result<Duration, TlsDirError> {
    let fresh_for = own.fresh_for()?;
    if !fresh_for.is_zero() {
        return Ok(fresh_for);
    }
    own.renew()?;
    tracing::info!("renewed this node's certificate");
    own.fresh_for()
}

/// Takes replaced files into use. What cannot be used is told once, and the former files stay in
/// force.
pub(crate) async fn run(shared: Arc<Shared>, tls: Arc<NodeTls>) {
    let (mut told, mut warned): (Option<String>, Option<Instant>) = (None, None);
    loop {
        let metrics = &shared.metrics;
        let (reading, own) = (Arc::clone(&tls), shared.own_authority.clone());
        let turn = Turn::of(&shared).await;
        let turning = turn.clone();
        let read = tokio::task::spawn_blocking(move || {
            let followed = turning.zip(own.as_deref()).map(|(it, own)| it.follow(own));
            let follows = followed.transpose().map_err(|error| error.to_string())?;
            let fresh_for = own.as_deref().map_or(Ok(LOOK_EVERY), renew_if_due);
            let fresh_for = fresh_for.map_err(|error| error.to_string())?;
            let is_new = reading.reload().map_err(|error| error.to_string())?;
            Ok((is_new, fresh_for, follows))
        });
        // Fails only where reading panics.
        let read = read.await.unwrap_or(Ok((false, LOOK_EVERY, None)));
        let mut fresh_for = read.as_ref().map_or(LOOK_EVERY, |(_, time, _)| *time);
        if let Some(turn) = turn {
            // What was written is in force now, and stands on the disk.
            if let Ok((_, _, Some(true))) = read {
                turn.done(&shared).await;
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
                metrics.tls_files_refused.inc();
                tracing::warn!(%error, "cannot use the certificate files: the former ones stay in use");
                told = Some(error);
            }
            Err(_) => {}
        }
        let end = tls.expires();
        let since_epoch = end.duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics
            .tls_certificate_end
            .set(since_epoch.as_secs().cast_signed());
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        let is_due = warned.is_none_or(|at| at.elapsed() > WARN_EVERY);
        if left < WARN_BEFORE && is_due {
            let days = left.as_secs() / (24 * 3600);
            let advice = match &shared.own_authority {
                None => "replace its files",
                Some(_) => "the node could not renew it, see the warning above",
            };
            tracing::warn!(days, "this node's certificate expires soon: {advice}");
            warned = Some(Instant::now());
        }
        tokio::time::sleep(fresh_for.clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY)).await;
    }
}

//! Certificates that are replaced while the node serves, and a warning before one ends.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use torc_tls::NodeTls;

use crate::shared::Shared;

/// How often the files are read.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long before its end a certificate is warned of.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Takes replaced files into use. What cannot be used is told once, and the former files stay in
/// force.
pub(crate) async fn run(shared: Arc<Shared>, tls: Arc<NodeTls>) {
    let (mut told, mut warned): (Option<String>, Option<Instant>) = (None, None);
    loop {
        let metrics = &shared.metrics;
        let reading = Arc::clone(&tls);
        let read = tokio::task::spawn_blocking(move || {
            reading.reload().map_err(|error| error.to_string())
        });
        // Fails only where reading panics.
        match read.await.unwrap_or(Ok(false)) {
            Ok(true) => {
                tracing::info!("new connections use the certificate files as they are now");
                (told, warned) = (None, None);
            }
            Ok(false) => told = None,
            Err(error) if told.as_ref() != Some(&error) => {
                metrics.tls_files_refused.inc();
                tracing::warn!(%error, "the certificate files cannot be used: the former ones stay in force");
                told = Some(error);
            }
            Err(_) => {}
        }
        let end = tls.expires();
        let since_epoch = end.duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics
            .tls_certificate_end
            .set(since_epoch.as_secs() as i64);
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        let is_due = warned.is_none_or(|at| at.elapsed() > WARN_EVERY);
        if left < WARN_BEFORE && is_due {
            let days = left.as_secs() / (24 * 3600);
            tracing::warn!(days, "this node's certificate ends soon: replace its files");
            warned = Some(Instant::now());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

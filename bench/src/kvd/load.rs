//! Storing the data set through the client library.

use anyhow::Result;
use futures::StreamExt as _;
use torc_client::Client;

use crate::records;

/// Records of a batch, and batches under way.
const BATCH: u64 = 500;
const UNDER_WAY: usize = 8;

/// Stores the first records of the data set.
///
/// # Errors
/// What the client said.
pub(crate) async fn load(client: &Client, count: u64) -> Result<()> {
    let batches = (0..count).step_by(BATCH as usize).map(|first| async move {
        let last = (first + BATCH).min(count);
        let pairs = (first..last)
            .map(records::pair)
            .map(|pair| (pair.key, pair.value));
        for stored in client.batch_put(pairs).await? {
            stored?;
        }
        anyhow::Ok(())
    });
    let mut batches = futures::stream::iter(batches).buffer_unordered(UNDER_WAY);
    while let Some(done) = batches.next().await {
        done?;
    }
    Ok(())
}

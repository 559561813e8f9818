//! Operations: turns Python arguments into futures of the client library.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;
use torc_client::{Client, Consistency, Error, GetOptions, ScanCursor, ScanOptions};

use crate::answer::{Answer, Many};
use crate::arrow;
use crate::convert::{self, Conditions, Settings};
use crate::error::{self, Unusable};
use crate::process::Owned;
use crate::scan::Records;

/// Rows of a table to copy and send together.
const ROWS_AT_A_TIME: usize = 8_192;

/// A future that may run on any thread and yields the answer for Python.
pub(crate) trait Operation: Future<Output = Result<Answer, Error>> + Send + 'static {}
impl<F: Future<Output = Result<Answer, Error>> + Send + 'static> Operation for F {}

/// A client until it is closed. Its methods only check their arguments; the futures send.
pub(crate) struct Operations {
    client: Owned<Mutex<Option<Client>>>,
    /// Shared by all clients on the same connections.
    is_closed: Arc<AtomicBool>,
}

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

impl Operations {
    pub(crate) fn new(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        Ok(Self::of(settings.client(py)?, Arc::default()))
    }

    fn of(client: Client, is_closed: Arc<AtomicBool>) -> Self {
        let client = Owned::new(Mutex::new(Some(client)));
        Self { client, is_closed }
    }

    fn beside(&self, client: Client) -> Self {
        Self::of(client, Arc::clone(&self.is_closed))
    }

    fn client(&self, py: Python<'_>) -> PyResult<Client> {
        let client = self
            .client
            .get(py)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let client = client.filter(|_| !self.is_closed.load(Ordering::Relaxed));
        client.ok_or_else(|| error::unusable(py, Unusable::Closed))
    }

    /// Drops the client; running operations continue.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let client = self.client.get(py)?;
        self.is_closed.store(true, Ordering::Relaxed);
        client.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    }

    /// Another namespace on the same connections.
    pub(crate) fn namespace(&self, py: Python<'_>, name: String) -> PyResult<Self> {
        Ok(self.beside(self.client(py)?.namespace(name)))
    }

    /// The same connections with another time limit per operation.
    pub(crate) fn with_timeout(&self, time: Object<'_, '_>) -> PyResult<Self> {
        let client = self.client(time.py())?;
        Ok(self.beside(client.with_deadline(convert::duration(time)?)))
    }

    /// Reaches the cluster.
    pub(crate) fn reach(&self, py: Python<'_>) -> PyResult<impl Operation + use<>> {
        let client = self.client(py)?;
        Ok(async move { client.topology().await.map(|_| Answer::Nothing) })
    }

    pub(crate) fn get(
        &self,
        key: Object<'_, '_>,
        stale: bool,
        versioned: bool,
    ) -> PyResult<impl Operation + use<>> {
        let client = self.client(key.py())?;
        let key = convert::bytes(key, "key")?;
        let consistency = if stale {
            Consistency::Stale
        } else {
            Consistency::Namespace
        };
        let answer = if versioned {
            Answer::Versioned
        } else {
            Answer::Value
        };
        Ok(async move {
            client
                .get_with(key, GetOptions { consistency })
                .await
                .map(answer)
        })
    }

    pub(crate) fn put(
        &self,
        key: Object<'_, '_>,
        value: Object<'_, '_>,
        conditions: &Conditions<'_, '_>,
        ttl: Option<Object<'_, '_>>,
    ) -> PyResult<impl Operation + use<>> {
        let client = self.client(key.py())?;
        let (key, value) = (convert::bytes(key, "key")?, convert::bytes(value, "value")?);
        let options = convert::put_options(conditions, ttl)?;
        Ok(async move {
            client
                .put_with(key, value, options)
                .await
                .map(Answer::Version)
        })
    }

    pub(crate) fn delete(
        &self,
        key: Object<'_, '_>,
        if_version: Option<Object<'_, '_>>,
    ) -> PyResult<impl Operation + use<>> {
        let client = self.client(key.py())?;
        let key = convert::bytes(key, "key")?;
        let condition = convert::if_version(if_version)?;
        Ok(async move {
            let deleted = client.delete_with(key, condition).await?;
            Ok(Answer::Existed(deleted.existed))
        })
    }

    pub(crate) fn get_many(
        &self,
        keys: Object<'_, '_>,
        return_exceptions: bool,
    ) -> PyResult<impl Operation + use<>> {
        let client = self.client(keys.py())?;
        let keys = convert::keys(keys)?;
        Ok(async move {
            let outcomes = client.batch_get(keys).await?;
            Ok(Answer::Values(Many {
                outcomes,
                return_exceptions,
            }))
        })
    }

    pub(crate) fn put_many(
        &self,
        records: Object<'_, '_>,
        ttl: Option<Object<'_, '_>>,
        return_exceptions: bool,
    ) -> PyResult<impl Operation + use<>> {
        let client = self.client(records.py())?;
        let options = convert::put_options(&Conditions::default(), ttl)?;
        let records = convert::records(records)?;
        Ok(async move {
            let records = records
                .into_iter()
                .map(|(key, value)| (key, value, options));
            let outcomes = client.batch_put_with(records).await?;
            Ok(Answer::Versions(Many {
                outcomes,
                return_exceptions,
            }))
        })
    }

    pub(crate) fn get_arrow(&self, keys: Object<'_, '_>) -> PyResult<impl Operation + use<>> {
        let client = self.client(keys.py())?;
        let keys = arrow::keys(keys)?;
        Ok(async move {
            let outcomes = client.batch_get(keys).await?;
            Ok(Answer::Column(Many::new(outcomes)))
        })
    }

    /// Stores batch by batch, each within the time limit. The first batch with a failure is the
    /// last.
    pub(crate) fn put_arrow(
        &self,
        table: Object<'_, '_>,
        key: &str,
        value: &str,
        ttl: Option<Object<'_, '_>>,
    ) -> PyResult<impl Operation + use<>> {
        let client = self.client(table.py())?;
        let options = convert::put_options(&Conditions::default(), ttl)?;
        let rows: Vec<_> = arrow::rows(table, (key, value), None)?.collect::<PyResult<_>>()?;
        Ok(async move {
            let mut outcomes = Vec::new();
            for rows in rows {
                let (keys, values) = (rows.keys, rows.values);
                for start in (0..keys.len()).step_by(ROWS_AT_A_TIME) {
                    let end = keys.len().min(start + ROWS_AT_A_TIME);
                    let record = |row| (keys.get(row), values.get(row), options);
                    let batch = client.batch_put_with((start..end).map(record)).await;
                    match batch {
                        Ok(batch) => outcomes.extend(batch),
                        Err(failed) => outcomes.push(Err(failed)),
                    }
                    if outcomes.iter().any(Result::is_err) {
                        return Ok(Answer::Stored(Many::new(outcomes)));
                    }
                }
            }
            Ok(Answer::Stored(Many::new(outcomes)))
        })
    }

    pub(crate) fn scan(
        &self,
        py: Python<'_>,
        keys_only: bool,
        limit: Option<u64>,
        contains: Option<Object<'_, '_>>,
        after: Option<&[u8]>,
    ) -> PyResult<Records> {
        let client = self.client(py)?;
        let contains: Vec<Bytes> = contains.map(convert::keys).transpose()?.unwrap_or_default();
        let after = after.map(ScanCursor::from_bytes).transpose();
        let after = after.map_err(|refused| error::raised(py, &refused))?;
        let options = ScanOptions {
            limit,
            after,
            keys_only,
            contains,
        };
        Ok(Records::new(client.scan(options)))
    }
}

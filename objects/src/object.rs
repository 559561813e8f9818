//! Objects to read, as they were when they were found.

use std::ops::Range;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryStreamExt as _};
use object_store::{Error, GetOptions, ObjectMeta, ObjectStoreExt as _};

use crate::location::{failed, relative};
use crate::{Location, ObjectError};

/// An object that was found. Reading it fails if it has changed since.
#[derive(Debug, Clone)]
pub struct Object {
    location: Location,
    name: String,
    found: ObjectMeta,
}

impl Location {
    /// The object that the location itself names, or else all objects below it, at all depths, in the
    /// order of their names.
    ///
    /// # Errors
    /// [`ObjectError::Object`].
    pub async fn objects(&self) -> Result<Vec<Object>, ObjectError> {
        let path = &self.prefix;
        let object = |name, found| Object {
            location: self.clone(),
            name,
            found,
        };
        // A bucket is no object.
        if path.parts().next().is_some() {
            let head = || -> BoxFuture<'_, _> { self.store.head(path).boxed() };
            match self.retried(head).await {
                Ok(found) => return Ok(vec![object(String::new(), found)]),
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(failed("look for", path.as_ref())(error)),
            }
        }
        let list = || -> BoxFuture<'_, Result<Vec<_>, Error>> {
            self.store.list(Some(path)).try_collect().boxed()
        };
        let mut listed = match self.retried(list).await {
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            listed => listed.map_err(failed("list", path.as_ref()))?,
        };
        listed.sort_by(|one, other| one.location.cmp(&other.location));
        let named = |found: ObjectMeta| Some(object(relative(&found.location, path)?, found));
        Ok(listed.into_iter().filter_map(named).collect())
    }
}

impl Object {
    /// Its name below the location; empty if the location names it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its length, bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.found.size
    }

    /// What the store calls its content: other content has another version.
    #[must_use]
    pub fn version(&self) -> String {
        match &self.found.e_tag {
            Some(tag) => tag.trim_matches('"').to_owned(),
            None => self.found.last_modified.to_rfc3339(),
        }
    }

    /// A part of it, exactly as long as requested.
    ///
    /// # Errors
    /// [`ObjectError::Damaged`]: it has changed, or is missing. [`ObjectError::Object`].
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let (store, path) = (&self.location.store, &self.found.location);
        let read = self.location.retried(|| {
            let options = GetOptions {
                range: Some(range.clone().into()),
                ..GetOptions::default()
            };
            Box::pin(async move {
                let read = async {
                    let got = store.get_opts(path, options).await?;
                    if self.is(&got.meta) {
                        return got.bytes().await.map(Some);
                    }
                    Ok(None)
                };
                match read.await {
                    // Stores do not say in one way that a range is not there, or not any more.
                    Err(error) => match store.head(path).await {
                        Ok(now) if !self.is(&now) => Ok(None),
                        _ => Err(error),
                    },
                    read => read,
                }
            })
        });
        let damaged = |what| ObjectError::damaged(path.as_ref(), what);
        match read.await {
            Ok(Some(bytes)) if bytes.len() as u64 == range.end.saturating_sub(range.start) => {
                Ok(bytes)
            }
            Ok(Some(_)) => Err(damaged("it is cut off")),
            Ok(None) => Err(damaged("it has changed while it was read")),
            Err(Error::NotFound { .. }) => Err(damaged("it is missing")),
            Err(error) => Err(failed("read", path.as_ref())(error)),
        }
    }

    /// Whether the content is the one that was found. Some services quote tags in one answer and not in
    /// another, and some answers have times in whole seconds.
    fn is(&self, now: &ObjectMeta) -> bool {
        let found = &self.found;
        let is_same = match (&found.e_tag, &now.e_tag) {
            (Some(one), Some(other)) => one.trim_matches('"') == other.trim_matches('"'),
            _ => found.last_modified.timestamp() == now.last_modified.timestamp(),
        };
        is_same && found.size == now.size
    }
}

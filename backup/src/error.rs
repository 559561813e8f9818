//! Errors of backups.

use torc_store::StoreError;

/// Why a backup cannot be written or read. No error loses what was there before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The URL is not a location for backups. Use `file:///DIR`, or `s3://BUCKET/PREFIX` if this
    /// program was built with the feature `s3`.
    #[error("{url} is not a location for backups: {what}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The object store refused or failed. A retry may help; complete backups are not affected.
    #[error("cannot {action} {object}: {source}")]
    Object {
        /// The failed action.
        action: &'static str,
        /// The object.
        object: String,
        /// The cause.
        #[source]
        source: object_store::Error,
    },
    /// The backup does not exist. `kvctl backup list` shows the existing ones.
    #[error("no backup {name} at this location{hint}")]
    NoBackup {
        /// Its name.
        name: String,
        /// A hint, or empty.
        hint: &'static str,
    },
    /// The name cannot be used. Nothing was changed.
    #[error("a backup cannot be named {name}: {what}")]
    Name {
        /// As it was given.
        name: String,
        /// Why not.
        what: &'static str,
    },
    /// An object is missing or damaged. Nothing was changed.
    #[error("{object} is damaged: {what}")]
    Damaged {
        /// The object.
        object: String,
        /// What is wrong.
        what: String,
    },
    /// A file operation on this machine failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A slice of the node's own store, or its disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupError {
    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }

    pub(crate) fn damaged(object: &str, what: impl Into<String>) -> Self {
        Self::Damaged {
            object: object.to_owned(),
            what: what.into(),
        }
    }

    /// Whether a retry may succeed.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Object { source, .. }
            if matches!(source, object_store::Error::Generic { .. }))
    }
}

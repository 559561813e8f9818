//! What goes wrong with backups.

use torc_store::StoreError;

/// Why a backup cannot be written or read. No error loses what was there before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The URL names no place for backups. Use `file:///DIR`, or `s3://BUCKET/PREFIX` where this program was built
    /// with the feature `s3`.
    #[error("{url} is no place for backups: {what}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The object store refused or failed. Trying again may help; nothing that was complete is lost.
    #[error("cannot {action} {object}: {source}")]
    Object {
        /// What was to be done.
        action: &'static str,
        /// Which object.
        object: String,
        /// Why.
        #[source]
        source: object_store::Error,
    },
    /// There is no such backup. `kvctl backup list` shows those that are there.
    #[error("there is no backup {name} there{hint}")]
    NoBackup {
        /// Its name.
        name: String,
        /// What else may be said.
        hint: &'static str,
    },
    /// A name that cannot be used for that. Nothing was changed.
    #[error("a backup cannot be named {name}: {what}")]
    Name {
        /// As it was given.
        name: String,
        /// Why not.
        what: &'static str,
    },
    /// An object is missing or not what it was when it was written. Nothing was changed by finding that out.
    #[error("{object} is damaged: {what}")]
    Damaged {
        /// Which object.
        object: String,
        /// What is wrong.
        what: String,
    },
    /// A file of this machine.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// Why.
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

    /// Whether the same may succeed later.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Object { source, .. }
            if matches!(source, object_store::Error::Generic { .. }))
    }
}

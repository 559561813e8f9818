//! Errors of backups.

use torc_objects::ObjectError;
use torc_store::StoreError;

/// Why a backup cannot be written or read. No error loses what was there before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The location: its URL, or an object there that cannot be written or read, or is damaged. Complete
    /// backups are not affected.
    #[error(transparent)]
    Location(#[from] ObjectError),
    /// The backup does not exist. `kvctl backup list` shows the existing ones.
    #[error("no backup {name} at this location{hint}")]
    NoBackup {
        /// Its name.
        name: String,
        /// A hint, or empty.
        hint: &'static str,
    },
    /// A backup cannot be read, so its packs are not known. Nothing was removed.
    #[error(
        "backup {name} cannot be read, so it is not known which packs it uses. To discard it, remove the \
         objects below backups/{name}, then prune again ({error})"
    )]
    Unreadable {
        /// Its name.
        name: String,
        /// Why.
        error: Box<BackupError>,
    },
    /// The name cannot be used. Nothing was changed.
    #[error("a backup cannot be named {name}: {what}")]
    Name {
        /// As it was given.
        name: String,
        /// Why not.
        what: &'static str,
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
        Self::Location(ObjectError::damaged(object, what))
    }
}

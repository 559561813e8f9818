//! Errors of locations.

/// Why an object cannot be written or read. Objects that were complete before are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The URL is not a location that this program can use.
    #[error("{url} is not a usable location: {what}")]
    Url {
        /// As it was given, without secrets.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The object store refused or failed. A retry may help.
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
    /// An object is missing or damaged. Nothing was changed.
    #[error("{object} is damaged: {what}")]
    Damaged {
        /// The object.
        object: String,
        /// What is wrong.
        what: String,
    },
    /// A file on this machine cannot be read.
    #[error("cannot {action}: {source}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl ObjectError {
    /// Of an object that is missing or damaged.
    #[must_use]
    pub fn damaged(object: &str, what: impl Into<String>) -> Self {
        Self::Damaged {
            object: object.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

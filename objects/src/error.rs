//! Errors of locations.

use std::io;

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
    #[error("cannot {action} {object}: {}", with_causes(source))]
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
        source: io::Error,
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

    /// Whether the object store, or the disk, refuses what was asked of it, so that a retry is of no use.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        use object_store::Error;
        let Self::Object { source, .. } = self else {
            return false;
        };
        let is_denied = |error: &(dyn std::error::Error + 'static)| {
            error.downcast_ref().is_some_and(|error: &io::Error| {
                use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
                matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
            })
        };
        let first: &(dyn std::error::Error + 'static) = source;
        matches!(
            source,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
        ) || std::iter::successors(Some(first), |error| error.source()).any(is_denied)
    }

    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

/// An error with the causes that its own text leaves out: the services' end with "builder error" or "error
/// sending request", and only the last cause tells why.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text += ": ";
            text += &told;
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use object_store::Error;

    use super::*;

    #[test]
    fn a_store_that_refuses_is_not_one_that_fails() {
        let path = || "object".to_owned();
        let of = |source| ObjectError::Object {
            action: "read",
            object: path(),
            source,
        };
        let source = || "403".into();
        let (store, path) = ("s3", path());
        let of_disk = |kind| {
            let source = Box::new(io::Error::from(kind));
            of(Error::Generic { store, source })
        };
        assert!(of_disk(io::ErrorKind::ReadOnlyFilesystem).is_denied());
        assert!(!of_disk(io::ErrorKind::StorageFull).is_denied());
        assert!(
            of(Error::Unauthenticated {
                path,
                source: source()
            })
            .is_denied()
        );
        assert!(
            !of(Error::Generic {
                store,
                source: source()
            })
            .is_denied()
        );
    }

    #[test]
    fn an_error_names_each_cause_once() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let sending = io::Error::other(Error::Generic {
            store: "http",
            source: Box::new(refused),
        });
        let failed = ObjectError::Object {
            action: "read",
            object: "object".to_owned(),
            source: Error::Generic {
                store: "S3",
                source: Box::new(Sending(sending)),
            },
        };
        assert_eq!(
            failed.to_string(),
            "cannot read object: Generic S3 error: error sending request: Generic http error: refused"
        );
    }

    /// Does not name its cause.
    #[derive(Debug, thiserror::Error)]
    #[error("error sending request")]
    struct Sending(#[source] io::Error);
}

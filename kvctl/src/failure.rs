//! How a command fails: one line for people, one exit code for scripts.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | key not found |
//! | 2 | usage: the command line, a local file, or a malformed line of it |
//! | 3 | unavailable: no node that could do it was reached in time, and nothing changed; or not every node has done it |
//! | 4 | a condition was not met, `doctor` found something wrong, or a backup or generation is missing or damaged; nothing changed |
//! | 5 | the outcome of a write is unknown: it may happen, now or later |
//! | 6 | refused: limits, the state of the cluster, no such backup, or missing permission; nothing changed. Or `restore` has left out a namespace that this cluster cannot hold |
//!
//! A command that the user interrupts exits with 130, as shells expect. If the reader
//! of the output closes it (`kvctl dump | head`), that is not a failure.

use std::io;
use std::path::{Path, PathBuf};

use torc_backup::BackupError;
use torc_client::{BearerId, ErrorKind, NodeId};
use torc_objects::ObjectError;
use torc_tls::IntroductionError;

use crate::format::ReadError;
use crate::text;

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    KeyNotFound = 1,
    Usage = 2,
    Unavailable = 3,
    ConditionNotMet = 4,
    OutcomeUnknown = 5,
    Refused = 6,
    Interrupted = 130,
}

/// Why a command failed. Its text says what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no value under key `{key}`")]
    KeyNotFound { key: String },
    #[error("no key has the id {id}")]
    IdNotFound { id: u64 },
    #[error("{0}")]
    Usage(String),
    /// A key or value beyond the limits; nothing was sent.
    #[error("{0}")]
    OutOfBounds(String),
    #[error("cannot {action} {path}: {source}")]
    File {
        action: &'static str,
        path: String,
        source: io::Error,
    },
    /// A generation that is missing or damaged.
    #[error("{0}")]
    Damaged(String),
    #[error("cannot write to standard output: {0}")]
    Stdout(io::Error),
    #[error("{path}: {error}")]
    Input { path: String, error: ReadError },
    #[error("{0}")]
    Cluster(#[from] torc_client::Error),
    #[error("{0}")]
    Backup(#[from] torc_backup::BackupError),
    #[error("{0}")]
    Objects(#[from] ObjectError),
    #[error("{what}; {done}")]
    Stopped {
        /// Why it stopped.
        what: Box<Failure>,
        /// How far it got and how to continue.
        done: String,
    },
    #[error(
        "no node has answered for {silent_s} s ({last}); the {change} continues by \
         itself: watch it with `kvctl status --watch`"
    )]
    LostSight {
        change: &'static str,
        silent_s: u64,
        last: torc_client::Error,
    },
    #[error("the {change} was aborted: every partition is back where it was")]
    Aborted { change: &'static str },
    #[error(
        "no join, leave, replacement, re-weighting or alteration is running, so nothing was changed: see \
         `kvctl status`"
    )]
    NothingRuns,
    #[error(
        "node {node} ({address}) does not answer, so the change would block: restart it, or declare \
         it dead for good with `--dead`"
    )]
    NotDeclaredDead { node: NodeId, address: String },
    #[error(
        "the token {id} is revoked, but {nodes} did not confirm; they may accept it until they reach \
         the topology group. Repeat the command, or stop the nodes"
    )]
    StillAccepted { id: BearerId, nodes: String },
    #[error(
        "{missing} of {asked} nodes failed or have not finished; the others are done: repeat the command, or \
         see the lines above"
    )]
    NotEverywhere {
        /// Nodes that failed or have not finished.
        missing: usize,
        /// All nodes that were asked.
        asked: usize,
    },
    #[error("problems found: {count}; standard output says what to do")]
    Unhealthy {
        /// Findings.
        count: usize,
    },
    #[error(
        "no plot was written: a node did not send the history of its accesses; \
         retry"
    )]
    NoHistory,
    #[error("{0}")]
    Introduction(#[from] torc_tls::IntroductionError),
    #[error(
        "`{0}` is not empty, so nothing was changed: pass --overwrite or --replace, or restore into another namespace with --only and --into"
    )]
    NotEmpty(String),
    #[error("there is no complete backup at {0}: `kvctl backup list {0}` shows unfinished ones")]
    NoBackup(String),
    #[error(
        "incomplete: {} not restored, because their generations keep no keys, and this cluster has {} \
         instead of {partitions}: {}. Build each again",
        text::counted(namespaces.len() as u64, "namespace"),
        text::counted((*here).into(), "partition"),
        namespaces.join(", ")
    )]
    LeftOut {
        /// The namespaces that are not restored; all others are.
        namespaces: Vec<String>,
        /// The partitions of the cluster of the backup.
        partitions: u32,
        /// The partitions of this cluster.
        here: u32,
    },
    #[error("{0}")]
    Kubernetes(String),
    #[error("the node exited: {0}; its log says why")]
    NodeEnded(std::process::ExitStatus),
    #[error(
        "{} has {} of free disk space, and the build needs about {}: nothing was begun; choose a directory on \
         another disk with --work",
        dir.display(), text::bytes(*free), text::bytes(*needed)
    )]
    NoSpace {
        /// The directory of the build, or the one that it will be in.
        dir: PathBuf,
        free: u64,
        needed: u64,
    },
    #[error("interrupted")]
    Interrupted,
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

impl Failure {
    /// A failed file operation.
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.display().to_string(),
            source,
        }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Self::KeyNotFound { .. } | Self::IdNotFound { .. } => Code::KeyNotFound,
            Self::Usage(_) | Self::File { .. } | Self::Stdout(_) | Self::Runtime(_) => Code::Usage,
            Self::OutOfBounds(_)
            | Self::Aborted { .. }
            | Self::NotEmpty(_)
            | Self::NoBackup(_)
            | Self::LeftOut { .. }
            | Self::NothingRuns
            | Self::NoSpace { .. }
            | Self::NotDeclaredDead { .. } => Code::Refused,
            Self::Input { error, .. } => match (error, error.of_object()) {
                (_, Some(error)) => code_of_objects(error),
                (ReadError::Bad(row), _) if row.problem.is_of_limits() => Code::Refused,
                (ReadError::Backup(error), _) => code_of_backup(error),
                _ => Code::Usage,
            },
            Self::Cluster(error) => code_of(error.kind(), error.maybe_applied()),
            Self::Backup(error) => code_of_backup(error),
            Self::Objects(error) => code_of_objects(error),
            Self::Stopped { what, .. } => what.code(),
            Self::Introduction(error) => match error {
                IntroductionError::OtherAuthority { .. } => Code::Refused,
                IntroductionError::Unreachable { .. } => Code::Unavailable,
                _ => Code::Usage,
            },
            Self::LostSight { .. }
            | Self::NotEverywhere { .. }
            | Self::StillAccepted { .. }
            | Self::NoHistory
            | Self::Kubernetes(_)
            | Self::NodeEnded(_) => Code::Unavailable,
            Self::Unhealthy { .. } | Self::Damaged(_) => Code::ConditionNotMet,
            Self::Interrupted => Code::Interrupted,
        }
    }

    /// Whether the reader of our output has only closed it.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        match self {
            Self::Stdout(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Stopped { what, .. } => what.is_broken_pipe(),
            _ => false,
        }
    }

    /// The failure as one line for stderr.
    pub(crate) fn line(&self) -> String {
        format!("kvctl: {}", crate::text::one_line(&self.to_string()))
    }

    /// Adds how far the command got.
    pub(crate) fn after(self, done: impl Into<String>) -> Self {
        Self::Stopped {
            what: Box::new(self),
            done: done.into(),
        }
    }
}

fn code_of_backup(error: &BackupError) -> Code {
    match error {
        BackupError::Location(error) => code_of_objects(error),
        BackupError::Name { .. } | BackupError::Io { .. } => Code::Usage,
        BackupError::NoBackup { .. } => Code::Refused,
        BackupError::Unreadable { .. } => Code::ConditionNotMet,
        _ => Code::Unavailable,
    }
}

fn code_of_objects(error: &ObjectError) -> Code {
    match error {
        ObjectError::Url { .. } | ObjectError::Io { .. } => Code::Usage,
        ObjectError::Damaged { .. } => Code::ConditionNotMet,
        error if error.is_denied() => Code::Refused,
        _ => Code::Unavailable,
    }
}

/// An unknown outcome takes precedence over its cause.
fn code_of(kind: ErrorKind, maybe_applied: bool) -> Code {
    match kind {
        _ if maybe_applied => Code::OutcomeUnknown,
        ErrorKind::OutcomeUnknown => Code::OutcomeUnknown,
        ErrorKind::ConditionNotMet => Code::ConditionNotMet,
        ErrorKind::Invalid
        | ErrorKind::Refused
        | ErrorKind::Denied
        | ErrorKind::NoSuchNamespace
        | ErrorKind::NoSuchNode
        | ErrorKind::OutOfSpace => Code::Refused,
        // Corrupt and Internal: the node answers, but cannot serve the record.
        _ => Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BadRow, Problem};

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        let of = |kind| code_of(kind, false) as u8;
        assert_eq!(of(ErrorKind::Unavailable), 3);
        assert_eq!(of(ErrorKind::Deadline), 3);
        assert_eq!(of(ErrorKind::Overloaded), 3);
        assert_eq!(of(ErrorKind::Corrupt), 3);
        assert_eq!(of(ErrorKind::Internal), 3);
        assert_eq!(of(ErrorKind::ConditionNotMet), 4);
        assert_eq!(of(ErrorKind::OutcomeUnknown), 5);
        assert_eq!(of(ErrorKind::Invalid), 6);
        assert_eq!(of(ErrorKind::Refused), 6);
        assert_eq!(of(ErrorKind::Denied), 6);
        assert_eq!(of(ErrorKind::NoSuchNamespace), 6);
        assert_eq!(of(ErrorKind::NoSuchNode), 6);
        assert_eq!(of(ErrorKind::OutOfSpace), 6);
    }

    #[test]
    fn a_write_that_may_have_happened_is_of_unknown_outcome_whatever_its_kind() {
        for kind in [
            ErrorKind::Internal,
            ErrorKind::Deadline,
            ErrorKind::Unavailable,
        ] {
            assert_eq!(code_of(kind, true), Code::OutcomeUnknown, "{kind:?}");
        }
    }

    fn input(problem: Problem) -> Failure {
        let bad = BadRow {
            line: 3,
            last_line: 3,
            problem,
            bytes: bytes::Bytes::new(),
        };
        Failure::Input {
            path: "f.csv".into(),
            error: bad.into(),
        }
    }

    #[test]
    fn a_malformed_line_is_usage_and_an_oversized_value_is_refused() {
        let malformed = input(Problem::Base64("key"));
        assert_eq!(malformed.code(), Code::Usage);
        assert_eq!(
            malformed.line(),
            "kvctl: f.csv: line 3: `key_base64` is not base64"
        );
        let oversized = input(Problem::OutOfBounds("too long".into()));
        assert_eq!(oversized.code(), Code::Refused);
    }

    #[test]
    fn a_damaged_backup_is_not_a_usage_error() {
        let damaged = BackupError::Location(ObjectError::damaged("packs/1.pack", "it is cut off"));
        let failure = Failure::Input {
            path: "file:///backups".into(),
            error: ReadError::Backup(Box::new(damaged)),
        };
        assert_eq!(failure.code(), Code::ConditionNotMet);
    }

    #[test]
    fn how_far_it_went_follows_what_happened_and_keeps_the_code() {
        let failure = Failure::KeyNotFound { key: "k".into() }.after("2 of 3 done");
        assert_eq!(failure.line(), "kvctl: no value under key `k`; 2 of 3 done");
        assert_eq!(failure.code(), Code::KeyNotFound);
    }

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::Usage("a\n  b\tc".into());
        assert_eq!(failure.line(), "kvctl: a b c");
    }

    #[test]
    fn only_a_reader_that_went_away_is_no_failure() {
        let stdout = |kind| Failure::Stdout(io::Error::from(kind));
        assert!(stdout(io::ErrorKind::BrokenPipe).is_broken_pipe());
        assert!(
            stdout(io::ErrorKind::BrokenPipe)
                .after("x")
                .is_broken_pipe()
        );
        assert!(!stdout(io::ErrorKind::StorageFull).is_broken_pipe());
    }
}

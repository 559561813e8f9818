//! Errors in settings.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a node cannot start with these settings. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the settings in {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file contains an unknown setting.
    #[error("{}: there is no setting `{name}`{}", .file.display(), did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// The file.
        file: PathBuf,
        /// The unknown name.
        name: String,
        /// The closest known setting.
        nearest: Option<String>,
    },
    /// The file is not TOML of the known settings.
    #[error("{}, line {line}, `{name}`: {why}", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What the line sets: its value may be a secret.
        name: String,
        /// The cause.
        why: String,
    },
    /// A setting is missing, out of its range, or conflicts with another one.
    #[error("--{setting} {problem}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// The problem and the allowed values, as a sentence about the setting.
        problem: String,
    },
    /// A setting has an unusable value.
    #[error("--{setting}: {problem}")]
    Value {
        /// Its name.
        setting: &'static str,
        /// The problem, and the allowed values.
        problem: String,
    },
    /// Unprotected serving beyond this machine must be requested explicitly.
    #[error(
        "{address} is not a loopback address, and connections are neither encrypted nor authenticated: \
         bind 127.0.0.1, add --secure, set --tls-cert, --tls-key and --tls-ca, or add --insecure if you trust the network"
    )]
    Exposed {
        /// The address in question.
        address: SocketAddr,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

/// `problem` continues the sentence that begins with the setting.
pub(super) fn problem(setting: &'static str, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError::Setting {
        setting,
        problem: format!("{problem}"),
    }
}

pub(super) fn bad_value(setting: &'static str, problem: impl std::fmt::Display) -> ConfigError {
    ConfigError::Value {
        setting,
        problem: format!("{problem}"),
    }
}

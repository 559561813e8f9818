//! A namespace that is to be created, as a request names it.

use torc_proto::v1::CreateNamespaceRequest;
use torc_proto::{Fault, Reason};
use torc_ring::topology::NewNamespace;

/// Why a namespace is not proposed. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NamespaceError {
    /// More replicas than any cluster has.
    #[error("{asked} replicas are not possible: choose 1 to 5, or omit the number")]
    Replicas { asked: u32 },
}

impl From<NamespaceError> for Fault {
    fn from(error: NamespaceError) -> Self {
        let reason = match error {
            NamespaceError::Replicas { .. } => Reason::Invalid,
        };
        Self::new(reason, error.to_string())
    }
}

pub(super) fn checked(request: CreateNamespaceRequest) -> Result<NewNamespace, NamespaceError> {
    let mode = request.mode().into();
    let asked = request.replicas;
    let replicas = u8::try_from(asked).map_err(|_| NamespaceError::Replicas { asked })?;
    Ok(NewNamespace {
        name: request.name,
        mode,
        replicas: (replicas != 0).then_some(replicas),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_proto::v1::NamespaceMode;
    use torc_ring::topology;

    #[test]
    fn nothing_said_is_linearizable_and_as_many_replicas_as_the_cluster_has() {
        let request = |mode: NamespaceMode, replicas| CreateNamespaceRequest {
            name: "n".into(),
            mode: mode.into(),
            replicas,
        };
        let plain = checked(request(NamespaceMode::Unspecified, 0)).unwrap();
        assert_eq!(plain.mode, topology::NamespaceMode::Linearizable);
        assert_eq!(plain.replicas, None, "as many as the cluster's");
        let eventual = checked(request(NamespaceMode::Eventual, 0)).unwrap();
        assert_eq!(eventual.mode, topology::NamespaceMode::Eventual);
        let asked = 300;
        let refused = checked(request(NamespaceMode::Linearizable, asked));
        assert_eq!(refused, Err(NamespaceError::Replicas { asked }));
    }
}

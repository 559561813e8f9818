//! Namespaces by their names in requests.

use torc_record::NamespaceId;
use torc_ring::topology::{Namespace, RoutingTable};

use crate::{Fault, Reason};

/// The id of a namespace, by its name in a request; the empty name means `default`.
///
/// # Errors
/// `NO_SUCH_NAMESPACE`; nothing was changed.
pub fn find_namespace(table: &RoutingTable, name: &str) -> Result<NamespaceId, Fault> {
    namespace_of(table, name).map(|namespace| namespace.id)
}

/// A namespace, by its name in a request; the empty name means `default`.
///
/// # Errors
/// `NO_SUCH_NAMESPACE`; nothing was changed.
pub fn namespace_of(table: &RoutingTable, name: &str) -> Result<Namespace, Fault> {
    table.namespace(name).copied().ok_or_else(|| {
        let shown: String = name.chars().take(80).collect();
        Fault::new(
            Reason::NoSuchNamespace,
            format!(
                "there is no namespace `{shown}`: create it with `kvctl namespace create {shown}`"
            ),
        )
    })
}

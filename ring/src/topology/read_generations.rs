//! Which generations a batch of gets has read.

use std::collections::BTreeMap;

use torc_record::NamespaceId;

use super::RoutingTable;

/// The generations that a batch has read, by namespace. A batch reads a single generation of a
/// namespace: once another one becomes current, all of its gets are run again.
#[derive(Debug, Default)]
pub struct ReadGenerations {
    read: BTreeMap<String, NamespaceId>,
    have_changed: bool,
}

impl ReadGenerations {
    /// Whether gets of these namespaces read another generation by this table than the batch did
    /// before.
    pub fn differ<'a>(
        &mut self,
        table: &RoutingTable,
        names: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        if table.generations.is_empty() {
            return false;
        }
        let (mut differ, mut last) = (false, None);
        for name in names {
            if last.replace(name) == Some(name) {
                continue;
            }
            let id = table.namespace(name).map(|namespace| namespace.id);
            let Some(id) = id.filter(|id| id.is_generation()) else {
                continue;
            };
            let name = if name.is_empty() { "default" } else { name };
            let before = self.read.insert(name.to_owned(), id);
            differ |= before.is_some_and(|before| before != id);
        }
        self.have_changed |= differ;
        differ
    }

    /// Whether a generation has changed since the last call, so that the parts of the batch that
    /// were read before must be read again.
    pub const fn have_changed(&mut self) -> bool {
        std::mem::replace(&mut self.have_changed, false)
    }
}

//! A node's metrics, as exposed to Prometheus.

use anyhow::{Context as _, Result};
use torc_testkit::{Kvd, http_get};

/// One response of `/metrics`.
#[derive(Debug, Clone)]
pub(crate) struct Readings(String);

impl Readings {
    /// # Errors
    /// The node does not respond.
    pub(crate) async fn of(node: &Kvd) -> Result<Self> {
        let (_, text) = http_get(node.http, "/metrics").await?;
        Ok(Self(text))
    }

    /// A gauge or a counter without labels, its name without `torc_` and `_total`.
    ///
    /// # Errors
    /// The node has no metric of this name.
    pub(crate) fn value(&self, name: &str) -> Result<f64> {
        let value = |line: &str| {
            let after = line.strip_prefix("torc_")?.strip_prefix(name)?;
            let after = after.strip_prefix("_total").unwrap_or(after);
            after.strip_prefix(' ')?.trim().parse().ok()
        };
        let found = self.0.lines().find_map(value);
        found.with_context(|| format!("kvd does not count {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let text = "# TYPE torc_store_slices gauge\n\
                    torc_store_slices_more 7\ntorc_store_slices 12\ntorc_flushes_total 3\n";
        let readings = Readings(text.to_owned());
        let value = |name| readings.value(name).ok();
        assert_eq!(value("store_slices"), Some(12.0));
        assert_eq!(value("flushes"), Some(3.0), "counters end in _total");
        assert_eq!(value("store"), None, "a part of a name is no name");
    }
}

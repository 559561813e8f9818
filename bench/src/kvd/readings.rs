//! A node's metrics, as exposed to Prometheus.

use anyhow::{Context as _, Result};

/// One response of `/metrics`.
#[derive(Debug, Clone)]
pub(crate) struct Readings(String);

impl Readings {
    pub(super) const fn of(text: String) -> Self {
        Self(text)
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
        let text = "HTTP/1.1 200 OK\r\n\r\n# TYPE torc_store_slices gauge\n\
                    torc_store_slices_more 7\ntorc_store_slices 12\ntorc_flushes_total 3\n";
        let readings = Readings::of(text.to_owned());
        let value = |name| readings.value(name).ok();
        assert_eq!(value("store_slices"), Some(12.0));
        assert_eq!(value("flushes"), Some(3.0), "counters end in _total");
        assert_eq!(value("store"), None, "a part of a name is no name");
    }
}

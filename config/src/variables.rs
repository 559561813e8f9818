//! Refuses misspelt `TORC_*` variables, like misspelt flags and keys of the file.
//!
//! Torc does not own the prefix: Kubernetes sets variables named after services in every
//! container (`TORC_SERVICE_HOST`, `TORC_PORT_7400_TCP`). So a name unlike any setting only
//! causes a warning.

/// Variables that tests and the other programs read.
const OTHERS: [&str; 3] = ["TORC_ENDPOINTS", "TORC_PROFILE", "TORC_TOKEN"];
const FOR_TESTS: &str = "TORC_TEST_";
const PREFIX: &str = "TORC_";
/// Similarity, of at most 1, from which a name counts as a misspelling of another.
const SIMILAR: f64 = 0.6;

/// An unknown variable whose name is very close to a known one. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no setting `{name}`: did you mean `{nearest}`? Rename the variable or unset it")]
pub struct MisspeltVariable {
    /// The variable.
    pub name: String,
    /// The closest setting's variable.
    pub nearest: String,
}

/// Compares the names of variables with those of the settings. Returns the unknown names with the
/// same prefix.
///
/// # Errors
/// [`MisspeltVariable`].
pub fn check(
    names: impl IntoIterator<Item = String>,
    settings: &[String],
) -> Result<Vec<String>, MisspeltVariable> {
    let mut foreign = Vec::new();
    for name in names {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if settings.contains(&name) || OTHERS.contains(&&*name) || name.starts_with(FOR_TESTS) {
            continue;
        }
        let known = settings.iter().map(String::as_str).chain(OTHERS);
        let known = known.map(|known| known.strip_prefix(PREFIX).unwrap_or(known));
        if let Some(nearest) = nearest(rest, known) {
            let nearest = format!("{PREFIX}{nearest}");
            return Err(MisspeltVariable { name, nearest });
        }
        foreign.push(name);
    }
    Ok(foreign)
}

/// The known name that was probably meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    let known = known.into_iter();
    let nearest = known.max_by(|one, other| similarity(one).total_cmp(&similarity(other)))?;
    (similarity(nearest) >= SIMILAR).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str) -> Result<Vec<String>, MisspeltVariable> {
        let settings = [
            "TORC_ZONE",
            "TORC_GRPC_ADDR",
            "TORC_HTTP_ADDR",
            "TORC_PARTITIONS",
        ];
        check([name.to_owned()], &settings.map(str::to_owned))
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_nearest_one() {
        for (name, meant) in [
            ("TORC_ZNOE", "TORC_ZONE"),
            ("TORC_GRPC_ADRESS", "TORC_GRPC_ADDR"),
            ("TORC_HTTP_ADR", "TORC_HTTP_ADDR"),
            ("TORC_PARTITION", "TORC_PARTITIONS"),
            ("TORC_ENDPOINT", "TORC_ENDPOINTS"),
        ] {
            let error = checked(name).unwrap_err();
            assert_eq!((&*error.name, &*error.nearest), (name, meant));
        }
    }

    #[test]
    fn known_names_pass_and_those_of_others_are_told() {
        for name in ["TORC_ZONE", "TORC_ENDPOINTS", "TORC_TEST_MUTANT", "HOME"] {
            assert_eq!(checked(name), Ok(Vec::new()));
        }
        for name in [
            "TORC_SERVICE_HOST",
            "TORC_SERVICE_PORT",
            "TORC_PORT",
            "TORC_PORT_7400_TCP_ADDR",
            "TORC_HEADLESS_SERVICE_PORT_GRPC",
        ] {
            assert_eq!(checked(name), Ok(vec![name.to_owned()]));
        }
    }
}

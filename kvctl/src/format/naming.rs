//! Maps the columns of a file to key and value.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{json_problem, object, raw_value};
use super::{COLUMNS, Problem, Row};

/// Most columns of a file with other column names.
const MOST_COLUMNS: usize = 1_024;

/// How the columns of a file are named.
#[derive(Debug, Clone)]
pub(crate) enum Naming {
    /// As `dump` names them.
    Ours,
    /// CSV and TSV files without a header, with two columns.
    None,
    /// By names that the user chose.
    Chosen(Arc<Chosen>),
}

/// Columns by name. Other columns are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) key: String,
    pub(crate) value: ChosenValue,
}

/// The source of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChosenValue {
    /// Empty values.
    Empty,
    /// A column, unchanged.
    Column(String),
    /// A JSON object of columns.
    Json(Vec<String>),
}

impl Naming {
    /// `Ours` for a file with a header, else `None`.
    pub(crate) const fn of(has_header: bool) -> Self {
        if has_header { Self::Ours } else { Self::None }
    }

    /// The limit of cells of a row; further cells are only counted.
    pub(super) const fn most_cells(&self) -> usize {
        match self {
            Self::Ours | Self::None => COLUMNS.len() + 1,
            Self::Chosen(_) => MOST_COLUMNS,
        }
    }
}

/// The fields of a JSON object, each at most once.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfObject;

        impl<'de> Visitor<'de> for OfObject {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, _>()? {
                    if fields.contains_key(&name) {
                        let message = format!("duplicate field `{name}`");
                        return Err(serde::de::Error::custom(message));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(OfObject)
    }
}

/// Where the chosen columns are in a line.
#[derive(Debug, Clone)]
pub(super) struct Places {
    chosen: Arc<Chosen>,
    key: usize,
    /// Position of the value's column, or of the object's columns.
    values: Vec<usize>,
}

impl Chosen {
    fn value_names(&self) -> &[String] {
        match &self.value {
            ChosenValue::Empty => &[],
            ChosenValue::Column(name) => std::slice::from_ref(name),
            ChosenValue::Json(names) => names,
        }
    }

    /// The names of the chosen columns.
    #[cfg(any(feature = "parquet", feature = "arrow"))]
    pub(super) fn names(&self) -> Vec<&String> {
        std::iter::once(&self.key)
            .chain(self.value_names())
            .collect()
    }

    /// Looks the columns up in a header.
    pub(super) fn places(self: &Arc<Self>, header: &[Cow<'_, str>]) -> Result<Places, Problem> {
        let place = |name: &String| {
            let mut found = header.iter().enumerate().filter(|(_, cell)| *cell == name);
            match (found.next(), found.next()) {
                (Some((place, _)), None) => Ok(place),
                (Some(_), Some(_)) => Err(Problem::ColumnTwice(name.clone())),
                (None, _) => Err(Problem::NoColumn(name.clone())),
            }
        };
        Ok(Places {
            chosen: Arc::clone(self),
            key: place(&self.key)?,
            values: self
                .value_names()
                .iter()
                .map(place)
                .collect::<Result<_, _>>()?,
        })
    }

    /// The row in a line of JSON.
    pub(super) fn row_of_json(&self, line: &str) -> Result<Row, Problem> {
        let Fields(fields) = serde_json::from_str(line).map_err(|error| json_problem(&error))?;
        let field = |name: &String| {
            let field = fields.get(name.as_str());
            field.ok_or_else(|| Problem::NoColumn(name.clone()))
        };
        let key = raw_value(field(&self.key)?.get())?;
        let value = match &self.value {
            ChosenValue::Empty => Bytes::new(),
            ChosenValue::Column(name) => raw_value(field(name)?.get())?,
            ChosenValue::Json(names) => {
                let fields = names.iter().map(|name| Ok((name.as_str(), field(name)?)));
                object(&fields.collect::<Result<Vec<_>, Problem>>()?)?
            }
        };
        self.row(key, value)
    }

    fn row(&self, key: Bytes, value: Bytes) -> Result<Row, Problem> {
        if key.is_empty() {
            return Err(Problem::EmptyKey(self.key.clone()));
        }
        Ok(Row {
            key,
            value,
            expires_at_ms: None,
        })
    }
}

impl Places {
    /// The row in a line of cells.
    pub(super) fn row(&self, cells: &[Cow<'_, str>]) -> Result<Row, Problem> {
        let cell = |place: &usize| cells.get(*place).map_or("", |cell| cell);
        let bytes = |place: &usize| Bytes::copy_from_slice(cell(place).as_bytes());
        let value = match &self.chosen.value {
            ChosenValue::Empty => Bytes::new(),
            ChosenValue::Column(_) => self.values.first().map(bytes).unwrap_or_default(),
            ChosenValue::Json(names) => {
                let fields = names.iter().zip(&self.values);
                let fields = fields.map(|(name, place)| (name.as_str(), cell(place)));
                object(&fields.collect::<Vec<_>>())?
            }
        };
        self.chosen.row(bytes(&self.key), value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, ReadError};
    use super::*;

    fn read(
        format: Format,
        text: &str,
        value: ChosenValue,
    ) -> Result<Vec<(String, String)>, String> {
        let chosen = Chosen {
            key: "url".to_owned(),
            value,
        };
        let input = std::io::Cursor::new(text.as_bytes().to_vec());
        let rows = format.read(input, Naming::Chosen(chosen.into()));
        rows.map(|row| {
            let row = row.map_err(|error: ReadError| error.to_string())?.row;
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            Ok((text(&row.key), text(&row.value)))
        })
        .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn any_columns_are_key_and_value_in_every_format() {
        let wide: String = (0..50).map(|_| "x,").collect();
        let header: String = (0..50).map(|_| "other,").collect();
        let csv = format!("{header}size,url,lang\n{wide}7,a,\"e,n\"\n{wide}8,b,de\n");
        let tsv = "size\turl\tlang\n7\ta\te,n\n8\tb\tde\n".to_owned();
        let json = "{\"url\":\"a\",\"size\":7,\"lang\":\"e,n\"}\n{\"lang\":\"de\",\"url\":\"b\",\"size\":8}\n";
        for (format, text) in [
            (Format::Csv, &csv),
            (Format::Tsv, &tsv),
            (Format::Ndjson, &json.to_owned()),
        ] {
            let one = read(format, text, ChosenValue::Column("lang".to_owned()));
            assert_eq!(
                one.unwrap(),
                pairs(&[("a", "e,n"), ("b", "de")]),
                "{format:?}"
            );
            let none = read(format, text, ChosenValue::Empty);
            assert_eq!(none.unwrap(), pairs(&[("a", ""), ("b", "")]), "{format:?}");
            let both = ChosenValue::Json(vec!["lang".to_owned(), "size".to_owned()]);
            let size = if format == Format::Ndjson {
                "7"
            } else {
                "\"7\""
            };
            let objects = read(format, text, both).unwrap();
            assert_eq!(
                objects[0].1,
                format!("{{\"lang\":\"e,n\",\"size\":{size}}}"),
                "{format:?}"
            );
            let missing = read(format, text, ChosenValue::Column("title".to_owned())).unwrap_err();
            assert!(missing.contains("`title`"), "{format:?}: {missing}");
        }
    }

    #[test]
    fn a_column_that_is_there_twice_is_not_guessed_at() {
        let twice = read(
            Format::Csv,
            "url,v,v\na,1,2\n",
            ChosenValue::Column("v".to_owned()),
        );
        assert!(twice.unwrap_err().contains("`v` twice"));
        let twice = read(
            Format::Ndjson,
            "{\"url\":\"a\",\"v\":1,\"v\":2}\n",
            ChosenValue::Column("v".to_owned()),
        );
        assert!(twice.unwrap_err().contains("duplicate field `v`"));
        let empty = read(
            Format::Csv,
            "url,v\n,2\n",
            ChosenValue::Column("v".to_owned()),
        );
        let empty = empty.unwrap_err();
        assert!(empty.contains("`url` is empty"), "{empty}");
    }
}

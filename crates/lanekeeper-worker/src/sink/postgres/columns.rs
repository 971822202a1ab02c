//! From names to the statement. No name reaches it unquoted, and none that PostgreSQL would change.

use std::collections::BTreeSet;

use super::FencedUpsert;

/// PostgreSQL cuts longer names off without an error: two could become one.
const MAX_NAME_BYTES: usize = 63;
/// The most columns that a unique index can have.
const MAX_KEYS: usize = 32;
/// The most columns that a table can have.
const MAX_COLUMNS: usize = 1600;
/// What a stored row is called in the statement, where the table's own name may be anything.
const STORED: &str = "stored";

/// What is wrong with the names of a [`FencedUpsert`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: it must be {allowed}")]
pub struct InvalidColumns {
    /// Which name: `table`, `schema`, `keys[0]`, `values[2]`, `fence`; or `keys` and `columns` for their number.
    pub field: String,
    /// The name, shortened, or the number.
    pub value: String,
    /// What it must be.
    pub allowed: &'static str,
}

/// What an update does with a column.
#[derive(Debug, Clone, Copy)]
enum Update {
    Set,
    Sum,
}

/// Names the table and the columns of a [`FencedUpsert`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    schema: Option<String>,
    table: String,
    keys: Vec<String>,
    values: Vec<(String, Update)>,
    fence: String,
}

impl Builder {
    pub(super) fn new(table: &str) -> Self {
        Self {
            schema: None,
            table: table.to_owned(),
            keys: Vec::new(),
            values: Vec::new(),
            fence: "fence".to_owned(),
        }
    }

    /// The table's schema; by default the connection's search path decides.
    pub fn schema(mut self, name: &str) -> Self {
        self.schema = Some(name.to_owned());
        self
    }

    /// A column of the row's key. Together they need a unique index or the primary key.
    pub fn key(mut self, name: &str) -> Self {
        self.keys.push(name.to_owned());
        self
    }

    /// A column that gets the message's value.
    pub fn set(mut self, name: &str) -> Self {
        self.values.push((name.to_owned(), Update::Set));
        self
    }

    /// A column to which the message's value is added, as for counters and sums; a new row begins with it.
    pub fn sum(mut self, name: &str) -> Self {
        self.values.push((name.to_owned(), Update::Sum));
        self
    }

    /// The column that keeps the fence (`text COLLATE "C"` or `char(31)`); `fence` by default.
    pub fn fence(mut self, name: &str) -> Self {
        name.clone_into(&mut self.fence);
        self
    }

    /// The statement, when every name can be one.
    pub fn build(self) -> Result<FencedUpsert, InvalidColumns> {
        self.check()?;
        let sql = self.sql();
        Ok(FencedUpsert { table: self.table, values: self.keys.len() + self.values.len(), sql })
    }

    fn columns(&self) -> impl Iterator<Item = (String, &String)> {
        let keys = self.keys.iter().enumerate().map(|(index, name)| (format!("keys[{index}]"), name));
        let values = self.values.iter().enumerate();
        let values = values.map(|(index, (name, _))| (format!("values[{index}]"), name));
        keys.chain(values).chain([("fence".to_owned(), &self.fence)])
    }

    fn check(&self) -> Result<(), InvalidColumns> {
        let number = |field: &str, value: usize, allowed| {
            Err(InvalidColumns { field: field.to_owned(), value: value.to_string(), allowed })
        };
        if self.keys.is_empty() || self.keys.len() > MAX_KEYS {
            return number("keys", self.keys.len(), "between 1 and 32 columns");
        }
        let columns = self.keys.len() + self.values.len() + 1;
        if columns > MAX_COLUMNS {
            return number("columns", columns, "at most 1600 with the fence");
        }
        if let Some(schema) = &self.schema {
            check_name("schema", schema)?;
        }
        check_name("table", &self.table)?;
        let mut seen = BTreeSet::new();
        for (field, name) in self.columns() {
            check_name(&field, name)?;
            if !seen.insert(name) {
                return Err(InvalidColumns {
                    field,
                    value: shown(name),
                    allowed: "another column than those before",
                });
            }
        }
        Ok(())
    }

    fn sql(&self) -> String {
        let list = |names: Vec<String>| names.join(", ");
        let table =
            self.schema.iter().chain([&self.table]).map(|name| quoted(name)).collect::<Vec<_>>().join(".");
        let (stored, fence) = (quoted(STORED), quoted(&self.fence));
        let columns = self.columns().map(|(_, name)| quoted(name)).collect::<Vec<_>>();
        let parameters = (1..=columns.len()).map(|number| format!("${number}")).collect();
        let keys = self.keys.iter().map(|name| quoted(name)).collect();
        let updates = self.values.iter().map(|(name, update)| {
            let name = quoted(name);
            match update {
                Update::Set => format!("{name} = EXCLUDED.{name}"),
                Update::Sum => format!("{name} = {stored}.{name} + EXCLUDED.{name}"),
            }
        });
        let updates = updates.chain([format!("{fence} = EXCLUDED.{fence}")]).collect();
        // The comparison is by bytes, whatever the column's collation (those of the operating system change with its
        // versions). A row without a fence is older than any message.
        format!(
            "INSERT INTO {table} AS {stored} ({columns}) VALUES ({parameters}::text) \
             ON CONFLICT ({keys}) DO UPDATE SET {updates} \
             WHERE COALESCE({stored}.{fence}::text, '') COLLATE \"C\" < EXCLUDED.{fence}::text COLLATE \"C\"",
            columns = list(columns),
            parameters = list(parameters),
            keys = list(keys),
            updates = list(updates),
        )
    }
}

fn check_name(field: &str, name: &str) -> Result<(), InvalidColumns> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        let allowed = "a name of 1 to 63 bytes without a zero byte";
        return Err(InvalidColumns { field: field.to_owned(), value: shown(name), allowed });
    }
    Ok(())
}

/// A name for an error, on one line and not longer than one.
fn shown(name: &str) -> String {
    let start: String = name.chars().take(80).collect();
    let more = if start.len() < name.len() { "…" } else { "" };
    format!("'{}{more}'", start.escape_debug())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: Builder) -> String {
        builder.build().expect_err("it must be refused").to_string()
    }

    fn places() -> Builder {
        FencedUpsert::builder("places").key("aircraft").set("place")
    }

    #[test]
    fn the_statement_is_one_upsert_under_the_condition_of_the_fence() {
        let built = FencedUpsert::builder("miles")
            .schema("shop")
            .key("aircraft")
            .key("day")
            .set("place")
            .sum("miles");
        let expected = "INSERT INTO \"shop\".\"miles\" AS \"stored\" (\"aircraft\", \"day\", \"place\", \"miles\", \
            \"newest\") VALUES ($1, $2, $3, $4, $5::text) ON CONFLICT (\"aircraft\", \"day\") DO UPDATE SET \
            \"place\" = EXCLUDED.\"place\", \"miles\" = \"stored\".\"miles\" + EXCLUDED.\"miles\", \
            \"newest\" = EXCLUDED.\"newest\" WHERE COALESCE(\"stored\".\"newest\"::text, '') COLLATE \"C\" < \
            EXCLUDED.\"newest\"::text COLLATE \"C\"";
        assert_eq!(built.fence("newest").build().unwrap().sql(), expected);
    }

    #[test]
    fn a_quote_in_a_name_ends_nothing() {
        let built = FencedUpsert::builder("a\"; DROP TABLE x; --").key("k").build().unwrap();
        assert!(built.sql().starts_with("INSERT INTO \"a\"\"; DROP TABLE x; --\" AS "), "{}", built.sql());
    }

    #[test]
    fn a_name_that_cannot_be_one_is_refused_with_its_field_and_what_is_allowed() {
        let allowed = "it must be a name of 1 to 63 bytes without a zero byte";
        let long = "ä".repeat(32);
        assert_eq!(refused(FencedUpsert::builder("").key("k")), format!("table is '': {allowed}"));
        assert_eq!(refused(places().schema("a\0b")), format!("schema is 'a\\0b': {allowed}"));
        assert_eq!(refused(places().key(&long)), format!("keys[1] is '{long}': {allowed}"));
        assert_eq!(refused(places().set("")), format!("values[1] is '': {allowed}"));
        assert_eq!(refused(places().fence("\0")), format!("fence is '\\0': {allowed}"));
        assert!(places().key(&"k".repeat(63)).build().is_ok());
        let huge = refused(places().set(&"x".repeat(1_000_000)));
        assert!(huge.len() < 200 && huge.contains('…'), "{huge}");
    }

    #[test]
    fn a_column_is_named_once() {
        let allowed = "it must be another column than those before";
        assert_eq!(refused(places().set("aircraft")), format!("values[1] is 'aircraft': {allowed}"));
        assert_eq!(refused(places().sum("place")), format!("values[1] is 'place': {allowed}"));
        assert_eq!(refused(places().set("fence")), format!("fence is 'fence': {allowed}"));
        assert!(places().set("Place").build().is_ok(), "quoted names are told apart by case");
    }

    #[test]
    fn the_number_of_columns_is_bounded() {
        let keys = |count| (0..count).fold(FencedUpsert::builder("t"), |to, n| to.key(&format!("k{n}")));
        let values = |count| (0..count).fold(keys(1), |to, n| to.set(&format!("v{n}")));
        assert_eq!(refused(keys(0)), "keys is 0: it must be between 1 and 32 columns");
        assert_eq!(refused(keys(33)), "keys is 33: it must be between 1 and 32 columns");
        assert!(keys(32).build().is_ok());
        assert_eq!(refused(values(1599)), "columns is 1601: it must be at most 1600 with the fence");
        assert!(values(1598).build().is_ok());
    }
}

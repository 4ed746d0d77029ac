//! The canonical key as an SQL expression, for triggers, functions and people at a prompt.
//!
//! [`Namespace::sql`] yields it; PostgreSQL 11 or later computes the same number from the same name. Every function in
//! it is qualified with `pg_catalog`, so no `search_path` can replace one.
//!
//! # Examples
//!
//! ```
//! use latchwork_core::key::Namespace;
//! use latchwork_core::key::sql::SqlPart;
//!
//! let shop = Namespace::new("shop")?;
//! let key = shop.sql(&[SqlPart::Text("order"), SqlPart::Param(1)])?;
//! let statement = format!("SELECT pg_catalog.pg_advisory_xact_lock({key})");
//! assert!(statement.contains("'order'") && statement.contains("$1"));
//! # Ok::<(), latchwork_core::key::KeyError>(())
//! ```

use super::digest::check_name;
use super::{KeyError, Namespace};

/// One part of a name in SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlPart<'a> {
    /// A fixed text. It is quoted, and may come from anywhere.
    Text(&'a str),
    /// A placeholder of the statement, such as `$1` for 1, of the type `text`.
    Param(u16),
    /// An SQL expression of any type that casts to `text`, such as `new.id`.
    ///
    /// It becomes part of the statement as it is: **never** from outside the program. It is evaluated twice, so it must
    /// give the same value both times.
    Expression(&'a str),
}

impl Namespace {
    /// Writes an SQL expression of the type `bigint` that computes the key of a name in these parts.
    ///
    /// It equals [`key_of`](Self::key_of) for the same texts, in a database in any encoding that has their characters.
    /// What only the server can see, it cannot check: a placeholder or expression that is NULL makes the whole key
    /// NULL, **and `pg_advisory_lock(NULL)` locks nothing and reports no error**; a name that is empty or too long for
    /// [`key_of`](Self::key_of) still gets a key here. Numbers are written as `text` writes them, which is
    /// how [`IntoKey`](super::IntoKey) writes integers.
    ///
    /// # Errors
    ///
    /// [`KeyError::SecretInSql`] for a namespace with a secret, [`KeyError::PlaceholderZero`] for `Param(0)`, and the
    /// errors of [`key_of`](Self::key_of) for what the fixed texts alone show.
    pub fn sql(&self, parts: &[SqlPart<'_>]) -> Result<String, KeyError> {
        if self.has_secret() {
            return Err(KeyError::SecretInSql);
        }
        self.check_sql(parts)?;
        let mut bytes = field(SqlPart::Text(self.name()));
        for part in parts {
            bytes.push_str(" OPERATOR(pg_catalog.||) ");
            bytes.push_str(&field(*part));
        }
        Ok(format!(
            "pg_catalog.textcat('x', pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256({bytes}), 1, 8), 'hex'))\
             ::pg_catalog.bit(64)::pg_catalog.int8"
        ))
    }

    fn check_sql(&self, parts: &[SqlPart<'_>]) -> Result<(), KeyError> {
        if parts.contains(&SqlPart::Param(0)) {
            return Err(KeyError::PlaceholderZero);
        }
        let texts: Vec<&str> = parts
            .iter()
            .map(|part| if let SqlPart::Text(text) = part { *text } else { "" })
            .collect();
        match check_name(&texts) {
            // What the server will put in may well not be empty.
            Err(KeyError::EmptyName) if parts.iter().any(|part| !matches!(part, SqlPart::Text(_))) => Ok(()),
            checked => checked,
        }
    }
}

/// Writes the length and the bytes of one part.
fn field(part: SqlPart<'_>) -> String {
    let text = match part {
        SqlPart::Text(text) => {
            let len = text.len();
            let text = literal(text);
            return format!("pg_catalog.int4send({len}) OPERATOR(pg_catalog.||) pg_catalog.convert_to({text}, 'UTF8')");
        }
        SqlPart::Param(number) => format!("${number}::pg_catalog.text"),
        SqlPart::Expression(sql) => format!("({sql})::pg_catalog.text"),
    };
    let text = format!("pg_catalog.convert_to({text}, 'UTF8')");
    format!("pg_catalog.int4send(pg_catalog.octet_length({text})) OPERATOR(pg_catalog.||) {text}")
}

/// Quotes a text so that it reads the same whether `standard_conforming_strings` is on or off.
fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    if text.contains('\\') {
        quoted.push('E');
    }
    quoted.push('\'');
    for char in text.chars() {
        if matches!(char, '\'' | '\\') {
            quoted.push(char);
        }
        quoted.push(char);
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Namespace {
        Namespace::new("shop").unwrap()
    }

    #[test]
    fn the_expression_reads_as_documented() {
        let sql = shop()
            .sql(&[SqlPart::Text("order"), SqlPart::Param(2), SqlPart::Expression("new.id")])
            .unwrap();
        assert_eq!(
            sql,
            "pg_catalog.textcat('x', pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256(\
             pg_catalog.int4send(4) OPERATOR(pg_catalog.||) pg_catalog.convert_to('shop', 'UTF8') OPERATOR(pg_catalog.||) \
             pg_catalog.int4send(5) OPERATOR(pg_catalog.||) pg_catalog.convert_to('order', 'UTF8') OPERATOR(pg_catalog.||) \
             pg_catalog.int4send(pg_catalog.octet_length(pg_catalog.convert_to($2::pg_catalog.text, 'UTF8'))) \
             OPERATOR(pg_catalog.||) pg_catalog.convert_to($2::pg_catalog.text, 'UTF8') OPERATOR(pg_catalog.||) \
             pg_catalog.int4send(pg_catalog.octet_length(pg_catalog.convert_to((new.id)::pg_catalog.text, 'UTF8'))) \
             OPERATOR(pg_catalog.||) pg_catalog.convert_to((new.id)::pg_catalog.text, 'UTF8')\
             ), 1, 8), 'hex'))::pg_catalog.bit(64)::pg_catalog.int8"
        );
    }

    #[test]
    fn quoting_does_not_depend_on_standard_conforming_strings() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\b"), r"E'a\\b'");
        assert_eq!(literal(r"\'; DROP TABLE x; --"), r"E'\\''; DROP TABLE x; --'");
    }

    #[test]
    fn what_has_no_sql_form_is_refused() {
        let secret = shop().with_secret([7; 32]).unwrap();
        assert_eq!(secret.sql(&[SqlPart::Text("a")]), Err(KeyError::SecretInSql));
        assert_eq!(shop().sql(&[SqlPart::Param(0)]), Err(KeyError::PlaceholderZero));
        assert_eq!(shop().sql(&[]), Err(KeyError::EmptyName));
        assert_eq!(shop().sql(&[SqlPart::Text("")]), Err(KeyError::EmptyName));
        assert_eq!(
            shop().sql(&[SqlPart::Param(1), SqlPart::Text("a\0")]),
            Err(KeyError::NulInName { part: 1, at: 1 })
        );
        assert!(shop().sql(&[SqlPart::Param(1)]).is_ok());
    }
}

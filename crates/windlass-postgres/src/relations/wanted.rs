//! `[DATABASE.]SCHEMA.RELATION`, as a user writes it.

use std::fmt;

use super::relation::Relation;
use crate::quoting::quoted;

/// A relation that a user named. As in SQL and pg_dump, letters become lower case unless quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelationPattern {
    database: Option<String>,
    schema: String,
    name: String,
}

/// A text that is not `[DATABASE.]SCHEMA.RELATION`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} is not [DATABASE.]SCHEMA.RELATION")]
pub struct RelationPatternError {
    text: String,
}

impl RelationPattern {
    /// Parses two or three names with points between them.
    pub fn parse(text: &str) -> Result<Self, RelationPatternError> {
        let fault = || RelationPatternError {
            text: text.to_owned(),
        };
        let mut parts = parts(text).ok_or_else(fault)?;
        if parts.iter().any(String::is_empty) {
            return Err(fault());
        }
        let name = parts.pop().ok_or_else(fault)?;
        let schema = parts.pop().ok_or_else(fault)?;
        let database = parts.pop();
        if !parts.is_empty() {
            return Err(fault());
        }
        Ok(Self {
            database,
            schema,
            name,
        })
    }

    pub(super) fn matches(&self, relation: &Relation) -> bool {
        let database = self.database.as_ref();
        database.is_none_or(|database| *database == relation.database)
            && self.schema == relation.schema
            && self.name == relation.name
    }
}

impl fmt::Display for RelationPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "{}.", quoted(database))?;
        }
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// The names between points; `None` if a quote is not closed, or no point follows it.
fn parts(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => part.extend(letters.next()),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            letter if quoted => part.push(letter),
            letter => part.extend(letter.to_lowercase()),
        }
    }
    parts.push(part);
    (!quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, String, String)> {
        let pattern = RelationPattern::parse(text).ok()?;
        Some((pattern.database, pattern.schema, pattern.name))
    }

    #[test]
    fn names_are_taken_apart_as_in_sql() {
        let own = |database: Option<&str>, schema: &str, name: &str| {
            Some((database.map(str::to_owned), schema.into(), name.into()))
        };
        assert_eq!(parsed("public.orders"), own(None, "public", "orders"));
        assert_eq!(
            parsed("Shop.Public.Orders"),
            own(Some("shop"), "public", "orders")
        );
        assert_eq!(
            parsed(r#"public."Or.ders""#),
            own(None, "public", "Or.ders")
        );
        assert_eq!(parsed(r#"a."b""c""#), own(None, "a", r#"b"c"#));
        for name in ["orders", "Or.ders", r#"b"c"#, "täglich", "mit platz"] {
            let text = format!("{}.{}", quoted("S"), quoted(name));
            assert_eq!(parsed(&text), own(None, "S", name), "{text}");
        }
        for wrong in ["", "orders", "a..b", ".a", "a.", "a.b.c.d", r#"a."b"#] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}

//! Names as a user has to write them in SQL.

/// A name, in quotes if it would otherwise be read as another one.
pub(crate) fn quoted(name: &str) -> String {
    let plain =
        |letter: char| letter.is_lowercase() || letter.is_numeric() || "_$".contains(letter);
    let is_number = name.starts_with(|letter: char| letter.is_numeric() || letter == '$');
    if !name.is_empty() && !is_number && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_sql_would_read_as_others_are_quoted() {
        for plain in ["orders", "_o$1", "größe"] {
            assert_eq!(quoted(plain), plain);
        }
        for (name, written) in [
            ("Back-Up", "\"Back-Up\""),
            ("a\"b", "\"a\"\"b\""),
            ("1st", "\"1st\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}

//! Replaces the passwords in words of the command line.

const STARS: &str = "***";
const KEYWORDS: [&str; 2] = ["password", "sslpassword"];

/// The word in a form that everybody may see.
pub fn hidden(word: &str) -> String {
    let mut text = word.to_owned();
    for keyword in KEYWORDS {
        text = hide_values(&text, keyword);
    }
    hide_identity(&hide_user_info(&text))
}

/// An identity of age, which somebody typed where everybody sees it.
fn hide_identity(text: &str) -> String {
    match text.to_ascii_uppercase().find("AGE-SECRET-KEY-1") {
        Some(at) => format!("{}{STARS}", &text[..at]),
        None => text.to_owned(),
    }
}

/// `password = 'x'` in a connection string, `?password=x` in a URI.
fn hide_values(text: &str, keyword: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(keyword) {
        let (before, after) = rest.split_at(at + keyword.len());
        shown.push_str(before);
        rest = after;
        let begins = !before[..at].ends_with(|letter: char| letter.is_alphanumeric());
        let Some(value) = after.trim_start().strip_prefix('=').filter(|_| begins) else {
            continue;
        };
        let value = value.trim_start();
        rest = &value[value_length(value)..];
        shown.push('=');
        shown.push_str(STARS);
    }
    shown + rest
}

/// The length of a value: up to its second quote, or up to the character that ends a value.
fn value_length(value: &str) -> usize {
    let mut escaped = false;
    let quoted = value.starts_with('\'');
    for (at, letter) in value.char_indices().skip(usize::from(quoted)) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' if quoted => return at + 1,
            ' ' | '&' if !quoted => return at,
            _ => {}
        }
    }
    value.len()
}

/// `scheme://user:password@host`.
fn hide_user_info(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let authority = rest.find(['/', '?']).unwrap_or(rest.len());
    let Some(at) = rest[..authority].rfind('@') else {
        return text.to_owned();
    };
    match rest[..at].split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:{STARS}{}", &rest[at..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_password_is_shown() {
        for (word, shown) in [
            (
                "host=x password=secret user=y",
                "host=x password=*** user=y",
            ),
            ("password = 's e\\'c' port=1", "password=*** port=1"),
            ("password=secret", "password=***"),
            (
                "postgresql://me:secret@host/db",
                "postgresql://me:***@host/db",
            ),
            ("postgresql://me:se@cret@host", "postgresql://me:***@host"),
            ("postgresql://me@host/db", "postgresql://me@host/db"),
            (
                "postgres://h/?password=secret&sslmode=x",
                "postgres://h/?password=***&sslmode=x",
            ),
            ("sslpassword=secret host=x", "sslpassword=*** host=x"),
            ("/srv/shop.db", "/srv/shop.db"),
        ] {
            assert_eq!(hidden(word), shown);
        }
    }
}

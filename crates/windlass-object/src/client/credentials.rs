//! Files with keys, as `~/.aws/credentials`: sections, and lines `NAME = VALUE`.

/// The names and values of a section. Lines before the first section belong to `default`.
pub(super) fn section(text: &str, profile: &str) -> Vec<(String, String)> {
    let mut name = "default";
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let bracketed = line.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Some(section) = bracketed {
            let section = section.trim();
            name = section.strip_prefix("profile ").unwrap_or(section);
        } else if let Some((key, value)) = line.split_once('=')
            && name == profile
        {
            let key = key.trim().to_ascii_lowercase();
            found.push((key, value.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::section;

    #[test]
    fn keys_are_those_of_the_profile() {
        let text = "# mine\naws_access_key_id = A\n[night]\naws_access_key_id=B\n aws_secret_access_key = c=d\n[profile day]\nregion = x\n";
        let of = |profile: &str| section(text, profile);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of("default"), [pair("aws_access_key_id", "A")]);
        assert_eq!(
            of("night"),
            [
                pair("aws_access_key_id", "B"),
                pair("aws_secret_access_key", "c=d")
            ]
        );
        assert_eq!(of("day"), [pair("region", "x")]);
        assert!(of("none").is_empty());
    }
}

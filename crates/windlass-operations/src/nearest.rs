//! Finds the known name that a mistyped name was meant to be.

/// How alike two names must be, from 0 to 1, before one is offered for the other.
const ALIKE: f64 = 0.8;

/// The known name that is most similar to this one, if any is similar enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase());
    let all = known.into_iter().map(|name| (likeness(name), name));
    let best = all.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(alike, _)| *alike >= ALIKE)
        .map(|(_, name)| name)
}

/// A hint that offers the similar name, or says where all known names are listed.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, where_else: &str) -> String {
    match nearest(word, known) {
        Some(near) => format!("Did you mean {near}? {where_else}"),
        None => where_else.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_is_alike_is_offered() {
        let known = ["compress", "buffers", "max-rate", "max-device-rate"];
        assert_eq!(nearest("compres", known), Some("compress"));
        assert_eq!(nearest("Max-Rat", known), Some("max-rate"));
        assert_eq!(nearest("password", known), None);
        assert_eq!(nearest("x", []), None);
    }
}

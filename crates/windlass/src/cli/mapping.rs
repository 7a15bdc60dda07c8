//! Values with a form of their own: `--tablespace-map OLD=NEW`, and `--relation NAME`.

use std::path::PathBuf;

use windlass_postgres::RelationPattern;

pub fn parse_mapping(text: &str) -> Result<(PathBuf, PathBuf), String> {
    // As in pg_basebackup a backslash hides an equals sign that belongs to a path.
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'=') => {
                parts.last_mut().into_iter().for_each(|p| p.push('='))
            }
            '=' => parts.push(String::new()),
            letter => parts
                .last_mut()
                .into_iter()
                .for_each(|part| part.push(letter)),
        }
        if letter == '\\' && letters.peek() == Some(&'=') {
            letters.next();
        }
    }
    match parts.as_slice() {
        [old, new] if old.starts_with('/') && new.starts_with('/') => Ok((old.into(), new.into())),
        [_, _] => Err("both paths must be absolute".to_owned()),
        _ => Err("write OLD=NEW, with \\= for an equals sign inside a path".to_owned()),
    }
}

pub fn parse_relation(text: &str) -> Result<RelationPattern, String> {
    RelationPattern::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_may_hide_an_equals_sign() {
        let map = |text| parse_mapping(text).ok();
        assert_eq!(map("/a=/b"), Some(("/a".into(), "/b".into())));
        assert_eq!(map(r"/a\=x=/b"), Some(("/a=x".into(), "/b".into())));
        assert_eq!(map("/a"), None);
        assert_eq!(map("a=/b"), None);
        assert_eq!(map("/a=/b=/c"), None);
    }
}

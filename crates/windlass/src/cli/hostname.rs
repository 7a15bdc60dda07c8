//! Reads the name of a machine.

/// The most bytes that the name of a machine may have.
const BYTES_MAX: usize = 253;

/// The name of a machine, in words that a path cannot begin with.
pub fn parse(text: &str) -> Result<String, String> {
    let is_fit = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    match !text.is_empty() && text.len() <= BYTES_MAX && text.chars().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a name has letters, digits, '-', '_' and '.', at most {BYTES_MAX} bytes"
        )),
    }
}

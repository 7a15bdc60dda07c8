//! The table of limits in docs/format.md says what the code allows.

use windlass_media::*;

const PAGE: &str = include_str!("../../../../docs/format.md");

/// A size as the page writes it.
fn size(bytes: impl Into<u64>) -> String {
    let bytes = bytes.into();
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &&(u32, &str)| bytes.is_multiple_of(1 << shift);
    match units.iter().find(fits) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// A number as the page writes it: `10,000,000`.
fn number(value: impl Into<u64>) -> String {
    let digits = value.into().to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// The rows of the table: what is limited, and the limit.
fn rows() -> Vec<(String, String)> {
    let section = PAGE.split("\n## Limits\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = lines.filter_map(|line| line.trim_end_matches(" |").split_once(" | "));
    rows.skip(1)
        .map(|(what, limit)| (what.to_owned(), limit.to_owned()))
        .collect()
}

#[test]
fn the_limits_on_the_page_are_those_of_the_code() {
    let path_bytes = PATH_BYTES_MAX as u64;
    let component_bytes = COMPONENT_BYTES_MAX as u64;
    assert!(FILE_BYTES_MAX.is_power_of_two());
    let expected = [
        ("stripes", number(STRIPES_MAX)),
        (
            "alignment",
            format!(
                "{} to {}, a power of two",
                size(ALIGNMENT_MIN),
                size(ALIGNMENT_MAX)
            ),
        ),
        (
            "frame, stored or decoded",
            format!("the header's frame size, and {}", size(FRAME_BYTES_MAX)),
        ),
        ("header", size(HEADER_BYTES_MAX)),
        (
            "index block",
            format!(
                "{}; {} of them on a stripe",
                size(INDEX_BLOCK_BYTES_MAX),
                number(INDEX_BLOCKS_MAX)
            ),
        ),
        (
            "footer",
            format!(
                "{}; {} sections",
                size(FOOTER_BYTES_MAX),
                number(SECTIONS_MAX)
            ),
        ),
        (
            "all sections of a footer, decoded",
            format!(
                "{} each (facts {}); together as much as the reader allows, including the footer \
                 itself",
                size(FILE_TABLE_BYTES_MAX),
                size(FACTS_BYTES_MAX)
            ),
        ),
        ("files", number(FILES_MAX)),
        ("superseded file numbers", number(SUPERSEDED_MAX)),
        (
            "path, link target, location",
            format!("{path_bytes} bytes; {component_bytes} bytes for a component of a path"),
        ),
        ("file", format!("2^{} bytes", FILE_BYTES_MAX.ilog2())),
        ("layer", number(u8::MAX)),
        (
            "envelopes",
            format!("{ENVELOPES_MAX}, of at most {ENVELOPE_BYTES_MAX} bytes each"),
        ),
    ];
    let expected = expected.map(|(what, limit)| (what.to_owned(), limit));
    assert_eq!(rows(), expected);
}

//! How a run compresses: a codec, or the range from which a run chooses.

use windlass_engine::CodecRange;
use windlass_engine::media::{Codec, CodecText};

use crate::error::CompressionError;

/// How a run compresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// The codec; with a range, the first one.
    pub codec: Codec,
    /// The codecs between which the run chooses.
    pub range: Option<CodecRange>,
}

impl Compression {
    /// The codec with which a run begins.
    pub fn first(&self) -> Codec {
        self.codec
    }

    /// A codec, `auto`, or `auto:WEAKEST..STRONGEST`.
    pub fn parse(text: &str) -> Result<Self, CompressionError> {
        let range = match text.strip_prefix("auto") {
            Some("") => CodecRange::default(),
            Some(bounds) => parse_range(text, bounds)?,
            None => {
                let codec = parse_codec(text)?;
                return Ok(Self { codec, range: None });
            }
        };
        Ok(Self {
            codec: range.start(),
            range: Some(range),
        })
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            codec: Codec::Zstd(1),
            range: None,
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.range {
            Some(range) => write!(f, "auto:{range}"),
            None => write!(f, "{}", self.codec),
        }
    }
}

/// `:WEAKEST..STRONGEST`.
fn parse_range(text: &str, bounds: &str) -> Result<CodecRange, CompressionError> {
    let fault = || CompressionError::Range {
        text: text.to_owned(),
    };
    let bounds = bounds.strip_prefix(':').and_then(|it| it.split_once(".."));
    let (weakest, strongest) = bounds.ok_or_else(fault)?;
    CodecRange::new(parse_codec(weakest)?, parse_codec(strongest)?).ok_or_else(fault)
}

/// `none`, `lz4`, `zstd`, `zstd:LEVEL`.
pub fn parse_codec(text: &str) -> Result<Codec, CompressionError> {
    text.parse()
        .map_err(|CodecText(text)| CompressionError::Codec { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_codecs_is_read_and_shown() {
        let shown = |text| Compression::parse(text).ok().map(|it| it.to_string());
        assert_eq!(shown("auto").as_deref(), Some("auto:lz4..zstd:9"));
        assert_eq!(
            shown("auto:none..zstd").as_deref(),
            Some("auto:none..zstd:1")
        );
        assert_eq!(shown("zstd:3").as_deref(), Some("zstd:3"));
        for bad in [
            "auto:",
            "auto:lz4",
            "auto:zstd:6..lz4",
            "auto:lz4..tar",
            "automatic",
        ] {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }
}

//! CRC-32C of a page, with the processor's own instruction where it has one.

#![allow(unsafe_code, reason = "the instruction needs a processor that has it")]

/// The CRC-32C of some bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has it.
        return unsafe { with_instruction(bytes) };
    }
    windlass_layout::crc32c(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn with_instruction(bytes: &[u8]) -> u32 {
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (eights, rest) = bytes.as_chunks::<8>();
    let start = u64::from(u32::MAX);
    let crc = eights.iter().fold(start, |crc, eight| {
        _mm_crc32_u64(crc, u64::from_le_bytes(*eight))
    });
    let [a, b, c, d, ..] = crc.to_le_bytes();
    let crc = u32::from_le_bytes([a, b, c, d]);
    !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same() {
        let mut page = [0; 8192 + 5];
        for (index, byte) in (0_u32..).zip(page.iter_mut()) {
            *byte = index.wrapping_mul(2_654_435_761).to_le_bytes()[3];
        }
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&page), windlass_layout::crc32c(&page));
    }
}

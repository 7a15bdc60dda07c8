//! Pages of one kind, such as those of one relation, and which way of storing them is shorter: as
//! they are, or taken apart.
//!
//!   some frames: both ways --> samples --> the way of the frames that follow
//!
//! Frames that are stored both ways keep the shorter result. They come at the beginning, and now
//! and then later, because the content of a relation may change.
//!
//! Locking: a mutex for the samples, which is taken once for each sampled frame.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use windlass_media::{Codec, PageLayout};

/// The first frames of a class are stored both ways, ...
const FIRST_SAMPLES: u64 = 2;
/// ... and then each frame with a number that is a multiple of this.
const SAMPLE_EVERY: u64 = 64;
/// Pages are taken apart if that takes at most this many thousandths of what they take as they are,
/// ...
const WINS_PER_MILLE: u64 = 970;
/// ... and saves at least this many thousandths of their own length. A codec is fast on pages that
/// it makes very small, so taking them apart would cost time, and few bytes are left to save.
const SAVES_PER_MILLE: u64 = 40;

/// Pages that are laid out alike.
#[derive(Debug)]
pub struct PageClass {
    layout: PageLayout,
    frames: AtomicU64,
    apart: AtomicU8,
    samples: Mutex<Samples>,
}

/// What sampled frames took.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    raw: u64,
    plain: u64,
    apart: u64,
}

/// A way to store a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The pages as they are.
    Plain,
    /// The pages taken apart.
    Apart,
    /// The shorter of both.
    Both,
}

impl PageClass {
    /// Pages with this layout, of which nothing is known yet.
    pub fn new(layout: PageLayout) -> Self {
        Self {
            layout,
            frames: AtomicU64::new(0),
            apart: AtomicU8::new(0),
            samples: Mutex::default(),
        }
    }

    /// Whether `raw` bytes of pages that take `plain` bytes as they are, and `apart` bytes taken
    /// apart, are worth it.
    pub fn wins(raw: u64, plain: u64, apart: u64) -> bool {
        let saved = plain.saturating_sub(apart);
        apart * 1000 <= plain * WINS_PER_MILLE && saved * 1000 >= raw * SAVES_PER_MILLE
    }

    /// Whether taking pages apart costs no time worth mentioning with this codec. LZ4 and the
    /// fastest levels of zstd take less time than that alone.
    pub fn is_worth_it_with(codec: Codec) -> bool {
        matches!(codec, Codec::Zstd(level) if level > 0)
    }

    /// The layout.
    pub fn layout(&self) -> &PageLayout {
        &self.layout
    }

    /// The way for the next frame.
    pub(crate) fn way(&self) -> Way {
        let number = self.frames.fetch_add(1, Ordering::Relaxed);
        if number < FIRST_SAMPLES || number.is_multiple_of(SAMPLE_EVERY) {
            Way::Both
        } else if self.apart.load(Ordering::Relaxed) == 1 {
            Way::Apart
        } else {
            Way::Plain
        }
    }

    /// Takes what a frame of `raw` bytes takes in both ways.
    pub(crate) fn sampled(&self, raw: usize, plain: usize, apart: usize) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        // Older samples count half.
        samples.raw = samples.raw / 2 + raw as u64;
        samples.plain = samples.plain / 2 + plain as u64;
        samples.apart = samples.apart / 2 + apart as u64;
        let wins = Self::wins(samples.raw, samples.plain, samples.apart);
        self.apart.store(u8::from(wins), Ordering::Relaxed);
    }

    /// Whether a frame that was taken apart takes more than frames of this class take as they are,
    /// so that a look at the other way is due.
    pub(crate) fn is_surprise(&self, raw: usize, apart: usize) -> bool {
        let samples = *self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        apart as u64 * samples.raw > samples.plain * raw as u64
    }
}

#[cfg(test)]
mod tests {
    use windlass_media::windlass_pages::{Layout, PageSize};

    use super::*;

    fn class() -> PageClass {
        let page_size = PageSize::new(8192).unwrap();
        let columns = Vec::new();
        PageClass::new(PageLayout::new(Layout::PostgresHeap { page_size, columns }))
    }

    /// The ways of the next frames.
    fn ways(class: &PageClass, count: usize) -> Vec<Way> {
        (0..count).map(|_| class.way()).collect()
    }

    #[test]
    fn the_first_frames_and_some_later_ones_are_stored_both_ways() {
        let class = class();
        assert_eq!(ways(&class, 3), [Way::Both, Way::Both, Way::Plain]);
        class.sampled(1000, 500, 300);
        assert_eq!(ways(&class, 61), vec![Way::Apart; 61]);
        assert_eq!(ways(&class, 2), [Way::Both, Way::Apart]);
    }

    #[test]
    fn the_way_that_takes_clearly_less_wins_and_older_samples_count_less() {
        let class = class();
        ways(&class, 2);
        class.sampled(1000, 500, 490);
        assert_eq!(class.way(), Way::Plain, "not clearly less");
        class.sampled(1000, 500, 400);
        assert_eq!(class.way(), Way::Apart);
        (0..3).for_each(|_| class.sampled(1000, 500, 600));
        assert_eq!(class.way(), Way::Plain);
    }

    #[test]
    fn pages_that_a_codec_makes_very_small_stay_as_they_are() {
        let class = class();
        ways(&class, 2);
        class.sampled(1000, 36, 7);
        assert_eq!(class.way(), Way::Plain, "it saves 29 bytes of 1000");
        class.sampled(1000, 120, 3);
        assert_eq!(class.way(), Way::Apart, "it saves 117 of the last 1000");
        assert!(PageClass::wins(1000, 47, 7) && !PageClass::wins(1000, 46, 7));
    }

    #[test]
    fn a_frame_that_takes_more_than_samples_take_as_they_are_is_a_surprise() {
        let class = class();
        class.sampled(1000, 500, 300);
        assert!(!class.is_surprise(2000, 1000));
        assert!(class.is_surprise(2000, 1001));
    }
}

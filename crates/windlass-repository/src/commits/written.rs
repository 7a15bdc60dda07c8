//! Which pages of a database were written since a state, as its captured log says.
//!
//!   [stand 7] commit  commit  [stand 7] commit  commit  [stand 7] commit
//!                  ^ the state          the pages of these ^ where that is known to
//!
//! A log has every transaction, but it does not have what somebody wrote to the file past SQLite.
//! So only stands of one watch count: while a watch lasts, nobody else was seen to write. The state
//! must be of a moment within it. It is if it was pinned after the first stand of the watch, and
//! stands at a record behind one with another point. The order alone proves nothing: a stand is at
//! the commit that the last look found, and later ones may have been there already. Or the state
//! stands at a stand, and the file is proven to be the same.
//!
//! Invariant: when in doubt, the log says nothing.

use windlass_sqlite::{LogPoint, Standing};

use super::link::link;
use super::reader::{CommitReader, Record};
use super::stand::{StandAbout, point_of};
use crate::error::RepositoryError;
use crate::place::LogPlace;

/// What a log says was written since a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenSince {
    /// Up to where.
    pub until: Standing,
    /// The pages, counted from 1, in order.
    pub pages: Vec<u32>,
}

/// Finds out which pages were written since a state. The newest timeline counts. `None` if nobody
/// knows, or if the transactions since have more bytes of pages than this.
pub fn written_since(
    place: &LogPlace,
    state: &Standing,
    bytes_max: u64,
) -> Result<Option<WrittenSince>, RepositoryError> {
    let newest = place.timelines()?.pop();
    let linked = link(place, state)?.filter(|linked| Some(linked.timeline) == newest);
    let Some(linked) = linked else {
        return Ok(None);
    };
    let mut reader = CommitReader::new(place, linked.timeline)?;
    // An object may begin at the state. The one before says whether its watch was there already.
    reader.seek_before(linked.start)?;
    let mut trail = Trail::new(state);
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(record) = reader.next_record()? {
        let Record::Commit(head) = &record else {
            trail.pass(&record);
            continue;
        };
        if trail.is_behind {
            bytes += u64::from(head.count) * u64::from(head.page_bytes);
            if bytes > bytes_max {
                return Ok(None);
            }
            while let Some(number) = reader.page(head, &mut page)? {
                trail.pages.push(number);
            }
        }
        trail.pass(&record);
    }
    Ok(trail.end())
}

/// The way through a log, record after record.
struct Trail<'a> {
    state: &'a Standing,
    /// The watch of the last stand.
    watch: Option<u64>,
    /// When the file was looked at for the first stand of the watch, in nanoseconds since 1970.
    begun_nanos: i64,
    /// The watch has a record at another point, before the state, which was pinned within it.
    is_before: bool,
    /// The state was met, in this watch.
    is_behind: bool,
    /// What was written since, with what came after the last stand.
    pages: Vec<u32>,
    /// The last stand behind the state, and how many pages were written up to it.
    until: Option<(Standing, usize)>,
}

impl<'a> Trail<'a> {
    fn new(state: &'a Standing) -> Self {
        Self {
            state,
            watch: None,
            begun_nanos: i64::MAX,
            is_before: false,
            is_behind: false,
            pages: Vec::new(),
            until: None,
        }
    }

    /// Passes a record, whose pages were kept if the state was met.
    fn pass(&mut self, record: &Record) {
        let point = point_of(record.head());
        if let Record::Stand(_, about) = record {
            self.stand(point, about);
        }
        if self.watch.is_none() || self.is_behind {
            return;
        }
        match self.state.point.salts != [0; 8] && point == self.state.point {
            true => self.is_behind = self.is_before,
            false => self.is_before = self.begun_nanos <= self.state.seen_nanos(),
        }
        if let (true, Record::Stand(_, about)) = (self.is_behind, record) {
            self.until = Some((standing_of(point, about), self.pages.len()));
        }
    }

    fn stand(&mut self, point: LogPoint, about: &StandAbout) {
        if about.watch != self.watch {
            *self = Self::new(self.state);
            self.watch = about.watch;
            self.begun_nanos = about.standing.seen_nanos();
        }
        let own = standing_of(point, about);
        let is_proven = own.proves_unchanged_since(self.state)
            || self.state.proves_unchanged_since(&own)
            || own.is_same_file_as(self.state);
        self.is_behind |= self.watch.is_some() && is_proven;
        if self.is_behind {
            self.until = Some((own, self.pages.len()));
        }
    }

    fn end(mut self) -> Option<WrittenSince> {
        let (until, count) = self.until?;
        self.pages.truncate(count);
        self.pages.sort_unstable();
        self.pages.dedup();
        Some(WrittenSince {
            until,
            pages: self.pages,
        })
    }
}

fn standing_of(point: LogPoint, about: &StandAbout) -> Standing {
    let file = about.standing.file;
    Standing { point, file }
}

#[cfg(test)]
mod tests {
    use windlass_media::{LogRecord, RecordKind};
    use windlass_sqlite::DatabaseKey;

    use super::*;

    /// Where a state stands: at a frame of one log, in a file that was changed then.
    fn standing(frame: u32, changed: i64) -> Standing {
        let text = format!("7 {frame} {frame} 0 1 2 4096 {changed} 5 1 {changed}");
        Standing::try_from(text).unwrap()
    }

    fn head(kind: RecordKind, standing: &Standing) -> LogRecord {
        LogRecord {
            kind,
            page_bytes: 512,
            page_count: 8,
            count: 1,
            frame: standing.point.frame,
            salts: standing.point.salts,
            sums: standing.point.sums,
            number: 0,
            after_nanos: 0,
            by_nanos: 0,
        }
    }

    fn stand(frame: u32, changed: i64, watch: Option<u64>) -> Record {
        let standing = standing(frame, changed);
        let about = StandAbout {
            key: DatabaseKey {
                host: String::new(),
                path: "/shop.db".to_owned(),
            },
            standing,
            lost: None,
            watch,
            booted_nanos: None,
        };
        Record::Stand(head(RecordKind::Stand, &standing), about)
    }

    /// A transaction that wrote the page with the number of its frame.
    fn commit(frame: u32) -> Record {
        Record::Commit(head(RecordKind::Commit, &standing(frame, 0)))
    }

    /// What a log of these records says of a state.
    fn since(state: &Standing, records: &[Record]) -> Option<(u32, Vec<u32>)> {
        let mut trail = Trail::new(state);
        for record in records {
            if let (true, Record::Commit(head)) = (trail.is_behind, record) {
                trail.pages.push(head.frame);
            }
            trail.pass(record);
        }
        let found = trail.end()?;
        Some((found.until.point.frame, found.pages))
    }

    #[test]
    fn a_watch_says_what_was_written_since_a_state_within_it() {
        let watch = Some(1);
        let records = [
            stand(0, 100, watch),
            commit(1),
            commit(2),
            stand(2, 200, watch),
            commit(4),
            commit(3),
            stand(3, 300, watch),
            commit(5),
        ];
        // What the last stand does not know of is in the database's own log.
        assert_eq!(since(&standing(1, 999), &records), Some((3, vec![2, 3, 4])));
        assert_eq!(since(&standing(2, 999), &records), Some((3, vec![3, 4])));
        assert_eq!(since(&standing(5, 999), &records), None);
        assert_eq!(since(&standing(9, 999), &records), None);
        // The first stand may be later than the state, and the file another one by then.
        assert_eq!(since(&standing(0, 999), &records), None);
        let all = Some((3, vec![1, 2, 3, 4]));
        assert_eq!(since(&standing(0, 100), &records), all);
    }

    /// The commit was there when the watch began, and was found behind that.
    #[test]
    fn a_state_that_was_pinned_before_the_watch_began_is_not_within_it() {
        let watch = Some(1);
        let records = [
            stand(0, 500, watch),
            commit(1),
            commit(2),
            stand(2, 600, watch),
        ];
        assert_eq!(since(&standing(1, 499), &records), None);
        assert_eq!(since(&standing(1, 500), &records), Some((2, vec![2])));
    }

    #[test]
    fn nothing_is_known_where_a_watch_ends_or_was_none() {
        for (first, last) in [
            (Some(1), Some(2)),
            (Some(1), None),
            (None, Some(1)),
            (None, None),
        ] {
            let records = [
                stand(0, 100, first),
                commit(1),
                commit(2),
                stand(2, 200, last),
                commit(3),
                stand(3, 300, last),
            ];
            for state in [0, 1] {
                let found = since(&standing(state, 100), &records);
                assert_eq!(found, None, "{first:?} {last:?}");
            }
            // A state that the new watch saw come.
            let found = since(&standing(3, 999), &records);
            assert_eq!(found, last.map(|_| (3, Vec::new())));
            // One that stands where it began: only the file says whether it is that.
            let proven = since(&standing(2, 200), &records);
            assert_eq!(proven, last.map(|_| (3, vec![3])));
            assert_eq!(since(&standing(2, 199), &records), None);
        }
    }
}

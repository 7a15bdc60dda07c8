//! Segments and files go in and come out; what is wrong with them is refused.

use windlass_repository::{Fetched, LogCheck, LookAhead, Pushed, RepositoryError, push};

use crate::support::*;

#[test]
fn what_is_pushed_comes_back_and_a_second_push_writes_nothing() {
    let place = Place::new();
    for number in [1, 2, 3, 4097, 4098] {
        let path = place.segment((1, number), number);
        assert!(matches!(
            place.push(&path).unwrap(),
            Pushed::Stored { files: 1, .. }
        ));
        let before = place.objects();
        assert_eq!(place.push(&path).unwrap(), Pushed::Already);
        assert_eq!(place.objects(), before);
    }
    for number in [1, 2, 3, 4097, 4098] {
        let (fetched, bytes) = place.fetch(&name(1, number)).unwrap();
        assert_eq!(fetched, Fetched::Complete { bytes: SEGMENT });
        assert!(bytes == content((1, 1), number, number));
    }
    // Segments of 1 MiB have 4096 numbers below an upper half.
    assert!(
        place
            .objects()
            .iter()
            .any(|path| path.to_string_lossy().contains("/00000001/"))
    );
    let LogCheck {
        objects: count,
        faults,
        ..
    } = place.verify();
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(count, 5);
}

#[test]
fn other_content_under_the_same_name_is_refused_and_the_first_stays() {
    let place = Place::new();
    let path = place.segment((1, 5), 1);
    place.push(&path).unwrap();
    place.segment((1, 5), 2);
    let error = place.push(&path).unwrap_err();
    assert!(
        matches!(error, RepositoryError::Different { .. }),
        "{error}"
    );
    assert!(place.fetch(&name(1, 5)).unwrap().1 == content((1, 1), 5, 1));

    let history = place.wal("00000002.history");
    std::fs::write(&history, "1\t0/500000\tno reason\n").unwrap();
    place.push(&history).unwrap();
    assert_eq!(place.push(&history).unwrap(), Pushed::Already);
    std::fs::write(&history, "1\t0/600000\tno reason\n").unwrap();
    let error = place.push(&history).unwrap_err();
    assert!(
        matches!(error, RepositoryError::Different { .. }),
        "{error}"
    );
}

#[test]
fn files_of_the_log_come_back_by_their_own_names_only() {
    let place = Place::new();
    let segment = place.segment((1, 5), 1);
    place.push(&segment).unwrap();
    let partial = format!("{}.partial", name(1, 6));
    let backup = format!("{}.00000028.backup", name(1, 5));
    std::fs::write(place.wal(&partial), content((1, 1), 6, 7)).unwrap();
    std::fs::write(place.wal(&backup), "START WAL LOCATION: 0/500028\n").unwrap();
    std::fs::write(place.wal("00000002.history"), "1\t0/600000\tno reason\n").unwrap();
    for name in [&partial, &backup, "00000002.history"] {
        place.push(&place.wal(name)).unwrap();
        let (fetched, bytes) = place.fetch(name).unwrap();
        assert!(matches!(fetched, Fetched::Complete { .. }));
        assert!(bytes == std::fs::read(place.wal(name)).unwrap());
    }
    // The last segment of an abandoned timeline is never taken for a whole one.
    assert_eq!(place.fetch(&name(1, 6)).unwrap().0, Fetched::Absent);
    assert_eq!(place.fetch("00000003.history").unwrap().0, Fetched::Absent);
}

#[test]
fn what_is_no_segment_of_its_name_is_refused() {
    let place = Place::new();
    let bytes = content((1, 1), 5, 1);
    let refused = |file: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        let path = place.wal(file);
        std::fs::write(&path, bytes).unwrap();
        let error = place.push(&path).unwrap_err();
        assert!(
            matches!(
                error,
                RepositoryError::Segment { .. } | RepositoryError::Name { .. }
            ),
            "{error}"
        );
    };
    refused(&name(1, 6), &|_| {});
    refused(&name(1, 5), &|bytes| bytes.truncate(1 << 19));
    refused(&name(1, 5), &|bytes| bytes.truncate(10));
    refused(&name(1, 5), &|bytes| bytes[4] = 2);
    refused(&name(1, 5), &|bytes| bytes[0] = 1);
    refused("RECOVERYXLOG", &|_| {});
    assert!(place.objects().is_empty());
}

#[test]
fn a_place_that_is_not_there_is_an_error_and_never_looks_empty() {
    let place = Place::new();
    let path = place.segment((1, 5), 1);
    std::fs::remove_dir(place.place()).unwrap();
    let error = place.push(&path).unwrap_err();
    assert!(matches!(error, RepositoryError::Io { .. }), "{error}");
    let opened = windlass_repository::LogPlace::open(
        &windlass_repository::Place::directory(place.place()),
        None,
    );
    assert!(matches!(opened, Err(RepositoryError::Io { .. })));
    std::fs::create_dir(place.place()).unwrap();
    let opened = windlass_repository::LogPlace::open(
        &windlass_repository::Place::directory(place.place()),
        None,
    );
    assert!(matches!(opened, Err(RepositoryError::NoLog { .. })));
}

#[test]
fn segments_that_are_ready_go_into_one_object_and_later_pushes_find_them() {
    let place = Place::new();
    let paths: Vec<_> = (5..15)
        .map(|number| place.segment((1, number), number))
        .collect();
    paths[..7].iter().for_each(|path| place.ready(path));
    let mut request = place.request(&paths[0]);
    request.look_ahead = LookAhead(16);
    match push(&request).unwrap() {
        Pushed::Stored { files, .. } => assert_eq!(files, 7),
        other => panic!("{other:?}"),
    }
    assert_eq!(place.objects().len(), 1);
    for path in &paths[..7] {
        assert_eq!(place.push(path).unwrap(), Pushed::Already);
    }
    for path in &paths[7..] {
        assert!(matches!(
            place.push(path).unwrap(),
            Pushed::Stored { files: 1, .. }
        ));
    }
    for number in 5..15 {
        let (_, bytes) = place.fetch(&name(1, number)).unwrap();
        assert!(bytes == content((1, 1), number, number), "{number}");
    }
}

#[test]
fn no_object_crosses_the_boundary_of_its_directory() {
    let place = Place::new();
    let paths: Vec<_> = (4094..4098)
        .map(|number| place.segment((1, number), number))
        .collect();
    paths.iter().for_each(|path| place.ready(path));
    let mut request = place.request(&paths[0]);
    request.look_ahead = LookAhead(16);
    assert!(matches!(
        push(&request).unwrap(),
        Pushed::Stored { files: 2, .. }
    ));
    request.path = paths[2].clone();
    assert!(matches!(
        push(&request).unwrap(),
        Pushed::Stored { files: 2, .. }
    ));
    for number in 4094..4098 {
        assert!(place.fetch(&name(1, number)).unwrap().1 == content((1, 1), number, number));
    }
}

#[test]
fn absent_is_what_the_log_does_not_have_and_a_gap_is_an_error() {
    let place = Place::new();
    for number in [5, 6, 9] {
        place.push(&place.segment((1, number), number)).unwrap();
    }
    // Before its beginning and behind its end there is no log.
    for number in [3, 4, 10, 5000] {
        assert_eq!(
            place.fetch(&name(1, number)).unwrap().0,
            Fetched::Absent,
            "{number}"
        );
    }
    assert_eq!(place.fetch(&name(2, 5)).unwrap().0, Fetched::Absent);
    for number in [7, 8] {
        let error = place.fetch(&name(1, number)).unwrap_err();
        assert!(matches!(error, RepositoryError::Gap { .. }), "{error}");
    }
    // A server that has the segment itself does not miss it.
    place.segment((1, 7), 7);
    assert_eq!(place.fetch_beside(&name(1, 7)).unwrap().0, Fetched::Absent);
}

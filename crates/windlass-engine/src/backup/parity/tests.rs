//! Groups of random transfers: each byte is in one of them, and whatever is lost is computed again.

use proptest::prelude::*;
use windlass_media::Recipe;

use super::*;

const MEMBER_BYTES: usize = 4096;

/// A closed group as the writers of all parities got it.
struct Summed {
    members: Arc<[MemberEntry]>,
    parities: Vec<Vec<u8>>,
}

/// Adds the transfers of each stripe on a thread of its own, and takes what comes out.
fn summed(stripes: &[Vec<Vec<u8>>], parities: usize) -> Vec<Summed> {
    let (groups, queues) = Groups::new(stripes.len(), parities, MEMBER_BYTES).unwrap();
    let taken: Vec<Vec<_>> = std::thread::scope(|scope| {
        let takers: Vec<_> = queues
            .into_iter()
            .map(|queue| {
                let take = |closed: Closed| (closed.members, closed.buffer.to_vec());
                scope.spawn(move || queue.iter().map(take).collect())
            })
            .collect();
        let adders = (0..).zip(stripes).map(|(stripe, transfers)| {
            let groups = &groups;
            scope.spawn(move || {
                let mut offset = 0;
                for bytes in transfers {
                    let mut take = |pool: &Arc<Pool>| pool.take(ROLE);
                    groups.add((stripe, offset), bytes, &mut take).unwrap();
                    offset += bytes.len() as u64;
                }
            })
        });
        let adders: Vec<_> = adders.collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        groups.end();
        takers
            .into_iter()
            .map(|taker| taker.join().unwrap())
            .collect()
    });
    let count = taken[0].len();
    assert!(
        taken.iter().all(|one| one.len() == count),
        "each parity has every group"
    );
    let group = |number: usize| Summed {
        members: Arc::clone(&taken[0][number].0),
        parities: taken.iter().map(|one| one[number].1.clone()).collect(),
    };
    (0..count).map(group).collect()
}

fn of<'a>(stripes: &'a [Vec<u8>], member: &MemberEntry) -> &'a [u8] {
    let from = usize::try_from(member.offset).unwrap();
    &stripes[usize::from(member.stripe)][from..from + member.bytes as usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_byte_is_in_one_group_and_lost_members_are_computed(
        transfers in prop::collection::vec(
            prop::collection::vec(1usize..3 * MEMBER_BYTES, 0..40),
            1..6,
        ),
        parities in 1usize..4,
        seed: u8,
    ) {
        let fill = |stripe: usize, number: usize, bytes: usize| -> Vec<u8> {
            let number = stripe * 31 + number * 7;
            let byte = |at: usize| u8::try_from((at + number) % 251).unwrap() ^ seed;
            (0..bytes).map(byte).collect()
        };
        let stripes: Vec<Vec<Vec<u8>>> = transfers.iter().enumerate().map(|(stripe, lengths)| {
            let made = lengths.iter().enumerate();
            made.map(|(number, bytes)| fill(stripe, number, *bytes)).collect()
        }).collect();
        let whole: Vec<Vec<u8>> = stripes.iter().map(|it| it.concat()).collect();
        let mut ends = vec![0; stripes.len()];
        for group in summed(&stripes, parities) {
            for member in group.members.iter() {
                let end = &mut ends[usize::from(member.stripe)];
                prop_assert_eq!(member.offset, *end, "members follow each other");
                *end = member.end();
                prop_assert_eq!(crc32c(of(&whole, member)), member.crc32c);
            }
            let numbers: Vec<_> = group.members.iter().map(|it| it.stripe).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "one of each stripe");
            let rows: Vec<u16> = (0..u16::try_from(parities).unwrap()).collect();
            let lost = &numbers[..numbers.len().min(parities)];
            let recipe = Recipe::new(lost[0], lost, &rows).unwrap();
            let mut sum = vec![0; group.parities[0].len()];
            for (parity, factor) in recipe.parities() {
                add_product(*factor, &group.parities[usize::from(*parity)], &mut sum);
            }
            for member in group.members.iter().filter(|it| !lost.contains(&it.stripe)) {
                let bytes = of(&whole, member);
                add_product(recipe.factor(member.stripe), bytes, &mut sum[..bytes.len()]);
            }
            let wanted = of(&whole, &group.members[0]);
            prop_assert_eq!(&sum[..wanted.len()], wanted);
            prop_assert!(sum[wanted.len()..].iter().all(|byte| *byte == 0));
        }
        let lengths: Vec<_> = whole.iter().map(|it| it.len() as u64).collect();
        prop_assert_eq!(ends, lengths);
    }
}

#[test]
fn a_stripe_that_is_far_ahead_waits_for_nobody() {
    let bytes = vec![7; MEMBER_BYTES];
    let stripes = [vec![bytes.clone(); 100], vec![], vec![bytes; 2]];
    let groups = summed(&stripes, 2);
    let members: usize = groups.iter().map(|group| group.members.len()).sum();
    assert_eq!(members, 102);
    assert!(groups.len() >= 100);
}

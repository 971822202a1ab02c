//! Which number of partitions comes next.

use super::chance::Chance;

/// Another number from 1 to `most` than `now`: the next one, the double, the half, an end, or any.
pub fn next(chance: &mut Chance, now: u32, most: u32) -> u32 {
    let any = 1 + u32::try_from(chance.below(u64::from(most))).expect("it is below a u32");
    let wanted = match chance.below(10) {
        0 => now + 1,
        1 => now.saturating_sub(1),
        2 => now * 2,
        3 => now / 2,
        4 => *chance.pick(&[1, most]),
        _ => any,
    };
    let wanted = wanted.clamp(1, most);
    match () {
        () if wanted != now => wanted,
        () if now < most => now + 1,
        () => (now - 1).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_allowed_and_another_one_than_before() {
        let mut chance = Chance::new(3);
        let mut now = 4;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2_000 {
            let wanted = next(&mut chance, now, 64);
            assert!(wanted != now && (1..=64).contains(&wanted), "{now} -> {wanted}");
            seen.insert(wanted);
            now = wanted;
        }
        assert_eq!(seen.len(), 64);
    }
}

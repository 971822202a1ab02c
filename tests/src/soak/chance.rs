//! Chance that can be repeated: one seed gives one sequence of choices.

use std::time::{SystemTime, UNIX_EPOCH};

/// Names the seed of a run that is to be repeated.
pub const SEED: &str = "LANEKEEPER_SOAK_SEED";
/// Names how many minutes a run is to take instead of the usual short time.
pub const MINUTES: &str = "LANEKEEPER_SOAK_MINUTES";

/// The seed that the environment names, or a new one.
pub fn seed() -> u64 {
    number(SEED).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        // Short enough to be copied by hand.
        Chance::new(u64::from(now.subsec_nanos()) ^ now.as_secs()).next() % 1_000_000_000
    })
}

/// The minutes that the environment names.
pub fn minutes() -> Option<u64> {
    number(MINUTES)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is '{text}': it must be a number from 0 up")))
}

/// A generator of choices (splitmix64): good enough to choose, useless for secrets.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The same seed gives the same choices.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From 0 to 1, without 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double has")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(from.len() as u64)).expect("it is below a length");
        &from[index]
    }

    /// A generator of its own, for a task of its own: how tasks take turns must not change what is chosen.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// Numbers of which few are very common and many are rare, as keys are in real life: the n-th has weight 1/n.
#[derive(Debug, Clone)]
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// Numbers from 0 to `count - 1`.
    #[expect(clippy::cast_precision_loss, reason = "a number of keys is far below 2^52")]
    pub fn new(count: usize) -> Self {
        let sums = (1..=count).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    /// One number.
    pub fn pick(&self, chance: &mut Chance) -> usize {
        let total = self.sums.last().copied().unwrap_or_default();
        let at = chance.unit() * total;
        self.sums.partition_point(|sum| *sum <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices() {
        let choices = |seed| {
            let mut chance = Chance::new(seed);
            (0..20).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
    }

    #[test]
    fn the_first_number_is_as_common_as_its_weight_says_and_each_occurs() {
        let zipf = Zipf::new(10);
        let mut chance = Chance::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[zipf.pick(&mut chance)] += 1;
        }
        // 1 of 2.93.
        assert!((3_200..3_650).contains(&counts[0]), "{counts:?}");
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
}

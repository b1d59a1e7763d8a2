//! Seeded randomness: splitmix64, and the seeds of a test.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number from 0 up to, not including, `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a small number");
        usize::try_from(self.next() % end).expect("below a usize")
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(usize, T)]) -> T {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *choice,
            }
        }
        unreachable!("the number was below the sum of the weights")
    }
}

/// Steele, Lea and Flood's splitmix64.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The seeds of a test, from its name and an index; the one of `TENURE_SEED` alone, if that is set.
pub(crate) fn seeds(test: &str, count: u64) -> Vec<u64> {
    if let Some(seed) = std::env::var("TENURE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let name = test.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (0..count).map(|index| mix(name.wrapping_add(index.wrapping_mul(GOLDEN)))).collect()
}

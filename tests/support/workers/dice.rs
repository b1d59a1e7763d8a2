//! What is drawn, the same for the same seed.

use std::io::Write as _;

use tenure::model::InstanceId;

/// Draws numbers (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below the bound")
    }
}

/// The seed in a variable, or one that is drawn. It is told, so that it can be given again.
pub(crate) fn seed(variable: &str, of: &str) -> u64 {
    let seed = match std::env::var(variable) {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("{variable} is \"{seed}\", expected a number")),
        Err(_) => InstanceId::generate().bits() as u64,
    };
    say(&format!("{of}: {variable}={seed}"));
    seed
}

/// Says something not through the harness, which shows nothing of tests that pass.
pub(crate) fn say(text: &str) {
    // Where nobody reads it, the test still runs.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

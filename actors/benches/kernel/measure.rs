//! Rounds, samples and rates.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Runs the variants in turn, one after the other, round after round, so that whatever changes on the machine
/// meanwhile meets them all. The first round warms up and is not counted.
pub(crate) fn interleave<T, const N: usize>(rounds: usize, variants: [&dyn Fn() -> T; N]) -> [Vec<T>; N] {
    let mut samples = variants.map(|_| Vec::with_capacity(rounds));
    for round in 0..=rounds {
        for (variant, samples) in variants.iter().zip(&mut samples) {
            let sample = black_box(variant());
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    samples
}

/// [`interleave`] of variants that are measured by one number each.
pub(crate) fn interleave_numbers<const N: usize>(
    rounds: usize,
    variants: [&dyn Fn() -> f64; N],
) -> [Samples; N] {
    interleave(rounds, variants).map(Samples)
}

/// One number per counted round.
pub(crate) struct Samples(pub(crate) Vec<f64>);

impl Samples {
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().copied().map(change).collect())
    }

    /// The quotients of the numbers of one round each: the median of ratios, not a ratio of medians.
    pub(crate) fn over(&self, other: &Self) -> Self {
        self.pair_by_pair(other, |own, other| own / other)
    }

    /// The differences of the numbers of one round each.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.pair_by_pair(other, |own, other| own - other)
    }

    fn pair_by_pair(&self, other: &Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(own, other)| combine(*own, *other)).collect())
    }
}

/// How many there are, for arithmetic. Exact up to 2^53.
#[allow(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    number(count) / took.as_secs_f64()
}

pub(crate) fn nanoseconds_each(count: usize, took: Duration) -> f64 {
    1e9 / per_second(count, took)
}

/// Repeats an operation for a span; answers how often it was done per second. It is told its number.
pub(crate) fn rate(span: Duration, mut operation: impl FnMut(usize)) -> f64 {
    /// Reading the clock costs as much as a fast operation.
    const AT_MOST_BETWEEN_LOOKS: usize = 1_000;
    let clock = Instant::now();
    let (mut done, mut between_looks, mut looked) = (0, 1, Duration::ZERO);
    loop {
        (done..done + between_looks).for_each(&mut operation);
        done += between_looks;
        let elapsed = clock.elapsed();
        if elapsed >= span {
            return per_second(done, elapsed);
        }
        // Of slow ones few: a thousand calls of an actor may take long where much else runs.
        if elapsed - looked < span / 1_000 {
            between_looks = AT_MOST_BETWEEN_LOOKS.min(2 * between_looks);
        }
        looked = elapsed;
    }
}

/// Runs one measurement of a rate on two threads at once; answers the sum. Each is told which one it is.
pub(crate) fn rate_of_two(measure: impl Fn(usize) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(2);
    let together = |which| {
        barrier.wait();
        measure(which)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| together(1));
        together(0) + other.join().expect("the other thread ends")
    })
}

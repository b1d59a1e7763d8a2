//! What a reader has to know about the machine and the build.

use std::hint::black_box;
use std::process::Command;

use crate::arguments::Scale;
use crate::measure::{rate, rate_of_two};

pub(crate) fn print(scale: &Scale, allocator: &str) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("- machine: {cores} cores, {} on {}", std::env::consts::ARCH, std::env::consts::OS);
    println!("- two threads of private arithmetic: {:.2} x one", two_threads(scale));
    println!("- compiler: {}", compiler().unwrap_or_else(|| "unknown".to_owned()));
    println!("- profile: {}", profile());
    println!(
        "- allocator: {allocator}; the kernel has its feature testkit, as all its development builds do"
    );
    println!("- rounds: {} counted after one that warms up; median (min to max)", scale.rounds);
    if !scale.judges {
        println!("- quick: sizes too small to judge by");
    }
    println!();
}

/// What a second thread can be worth at most on this machine: two virtual cores may be one real one.
fn two_threads(scale: &Scale) -> f64 {
    let alone = || {
        let mut state = 1_u64;
        rate(scale.span, |_| state = black_box(state).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31))
    };
    black_box(alone());
    rate_of_two(|_| alone()) / alone()
}

fn compiler() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn profile() -> String {
    let built = if cfg!(debug_assertions) { "with debug assertions" } else { "bench, as in Cargo.toml" };
    let overridden = std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PROFILE_"));
    overridden.fold(built.to_owned(), |text, (name, value)| format!("{text}, {name}={value}"))
}

//! Programs that write without end: the run ends, memory stays flat, and disk use is what the settings say.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::kit::*;

const MIB: u64 = 1 << 20;
/// By so much a host may grow, whatever passes through it.
const MOST_GROWTH: u64 = 32 * MIB;

/// How much is let through: all of it where there is time.
fn size() -> u64 {
    let full = std::env::var("TENURE_FIELD").is_ok_and(|field| field == "full");
    if full { 1024 * MIB } else { 64 * MIB }
}

/// A host with programs that write this much: bytes without a line, and lines.
fn writes(bytes: u64, more: &str) -> Place {
    Place::with(&format!(
        "[agents.bytes]\nkind = \"command\"\ncommand = [\"head\", \"-c\", \"{bytes}\", \"/dev/zero\"]\n\
         [agents.lines]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"yes 'a line of many' | head -c {bytes}\"]\n\
         [tasks.bytes]\nagent_id = \"bytes\"\nquery = \"q\"\n[tasks.lines]\nagent_id = \"lines\"\nquery = \"q\"\n{more}"
    ))
}

/// The most memory that a process ever had, or none if it has ended.
fn peak(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
}

/// What lies in a folder. The host writes its records there meanwhile: what is gone has no bytes.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => bytes_below(&entry.path()),
        false => entry.metadata().map_or(0, |file| file.len()),
    });
    sizes.sum()
}

fn run(server: &Server, task: &str) -> Value {
    let answer = server.post(&format!("/background/tasks/{task}/run"), r#"{"wait": true}"#);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

#[test]
fn a_gigabyte_of_output_ends_at_the_limit_of_a_file() {
    let place = writes(1024 * MIB, "");
    let server = place.serve(&[]);
    let before = peak(server.started.id()).unwrap();
    for task in ["bytes", "lines"] {
        let run = run(&server, task);
        assert_eq!(
            (&run["status"], &run["error"]["class"]),
            (&"failed".into(), &"output_too_large".into()),
            "{run}"
        );
        let folder = place.path(".tenure/workspace").join(run["workspace_path"].as_str().unwrap());
        let kept = bytes_below(&folder);
        assert!(
            (63 * MIB..65 * MIB).contains(&kept),
            "{kept} bytes are kept, and the limit of a file is 64 MiB"
        );
        std::fs::remove_file(folder.join("output.md")).unwrap();
    }
    let grown = peak(server.started.id()).unwrap() - before;
    assert!(grown < MOST_GROWTH, "memory grew by {grown} bytes");
    let store = bytes_below(&place.path(".tenure"));
    assert!(store < 4 * MIB, "{store} bytes are in the store");
}

#[test]
fn output_below_the_limits_is_kept_to_the_last_byte_and_fills_no_memory() {
    let size = size();
    let limits = format!(
        "[worker]\nmax_result_bytes = {size}\n[workspace]\nmax_file_bytes = {size}\nmax_total_bytes = {}\n",
        2 * size
    );
    let place = writes(size, &limits);
    let server = place.serve(&[]);
    let before = peak(server.started.id()).unwrap();
    for task in ["bytes", "lines"] {
        let run = run(&server, task);
        assert_eq!((&run["status"], &run["result"]["size"]), (&"completed".into(), &size.into()), "{run}");
        let folder = place.path(".tenure/workspace").join(run["workspace_path"].as_str().unwrap());
        assert_eq!(std::fs::metadata(folder.join("output.md")).unwrap().len(), size);
        std::fs::remove_file(folder.join("output.md")).unwrap();
    }
    let grown = peak(server.started.id()).unwrap() - before;
    assert!(grown < MOST_GROWTH, "memory grew by {grown} bytes");
}

/// Killed with this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_watches_a_program_that_writes_without_end_fills_no_memory_either() {
    let place = writes(1024 * MIB, "");
    for task in ["bytes", "lines"] {
        let mut command = place.command(&["run", "tenure.toml", task]);
        let mut child = Killed(command.stderr(Stdio::null()).spawn().unwrap());
        let mut shown = child.0.stdout.take().unwrap();
        let (mut most, mut piece) = (0, [0; 4096]);
        // A look with each piece of what it shows: the last of them is how the run ended.
        while shown.read(&mut piece).unwrap() > 0 {
            most = peak(child.0.id()).unwrap_or(0).max(most);
            assert!(most < 256 * MIB, "{task}: memory grew to {most} bytes, and would harm the machine");
        }
        let ended = child.0.wait().unwrap();
        assert_eq!(ended.code(), Some(1), "{task}: memory grew to {most} bytes");
        assert!((1..128 * MIB).contains(&most), "{task}: memory grew to {most} bytes");
        std::fs::remove_dir_all(place.path(".tenure/workspace")).unwrap();
    }
}

//! The examples print what their snapshots say: what a newcomer sees first is what there is.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn compaction_tells_its_seven_scenes() -> Result<(), Box<dyn Error>> {
    insta::assert_snapshot!("compaction", output_of("compaction")?);
    Ok(())
}

#[test]
fn plugin_actor_uses_the_kernel_by_messages_alone() -> Result<(), Box<dyn Error>> {
    insta::assert_snapshot!("plugin_actor", output_of("plugin_actor")?);
    Ok(())
}

#[test]
fn two_replicas_share_a_conversation() -> Result<(), Box<dyn Error>> {
    insta::assert_snapshot!("two_replicas", output_of("two_replicas")?);
    Ok(())
}

#[test]
fn year_in_milliseconds_tells_what_became_of_a_year() -> Result<(), Box<dyn Error>> {
    insta::assert_snapshot!("year_in_milliseconds", output_of("year_in_milliseconds")?);
    Ok(())
}

/// Runs an example to its end, which is a good one, and answers what it printed.
fn output_of(example: &str) -> Result<String, Box<dyn Error>> {
    let output = Command::new(built(example)?).output()?;
    let complaints = String::from_utf8(output.stderr)?;
    assert_eq!(complaints, "", "{example} writes to stderr");
    assert!(output.status.success(), "{example}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Where cargo put the example, beside this test: `deps` and `examples` share a folder. Not cargo itself: it
/// would build once more, with other features, what `cargo test` has built already.
fn built(example: &str) -> Result<PathBuf, Box<dyn Error>> {
    let this_test = env::current_exe()?;
    let profile = this_test.parent().and_then(|deps| deps.parent()).ok_or("this test lies in no folder")?;
    let path = profile.join("examples").join(example).with_extension(env::consts::EXE_EXTENSION);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("example {example} is not built: run `cargo test` without naming a target").into())
}

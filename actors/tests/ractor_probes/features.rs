//! Which ractor this is: its version and features, which cargo unifies over the whole build.

use std::any::Any;
use std::process::Command;

use ractor::message::BoxedMessage;

/// `async-trait` changes the actor trait, `cluster` its messages, spans cost memory: none may creep in.
#[test]
fn ractor_is_the_pinned_version_with_its_tokio_runtime_alone() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--workspace", "--all-features"])
        .args(["--invert", "ractor", "--depth", "0", "--prefix", "none", "--format", "{p} [{f}]"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr));
    assert_eq!(String::from_utf8_lossy(&tree.stdout).trim(), "ractor v0.16.5 [tokio_runtime]");
}

/// The same from inside this build: a message slot is its box, with no span and no serialized form beside it.
#[test]
fn a_boxed_message_is_nothing_but_its_box() {
    assert_eq!(size_of::<BoxedMessage>(), size_of::<Option<Box<dyn Any + Send>>>());
}

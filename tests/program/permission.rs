//! Files and folders that the program may not use.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use crate::copied;
use crate::kit::*;

/// Nobody: whoever may do everything is not hindered by modes.
const NOBODY: u32 = 65_534;

fn mode(place: &Place, name: &str, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(place.path(name), permissions).unwrap();
}

#[test]
fn what_may_not_be_read_or_written_is_said_and_nothing_is_left_behind() {
    let place = Place::with("");
    let am_root = rustix::process::geteuid().is_root();
    place.write("secret.toml", "[server]\ntoken = \"hunter2\"\n");
    place.write("store.db", "");
    std::fs::create_dir(place.path("closed")).unwrap();
    std::fs::create_dir(place.path("open")).unwrap();
    if am_root {
        chown(place.path("open"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for (name, bits) in [(".", 0o755), ("secret.toml", 0), ("store.db", 0), ("closed", 0o555)] {
        mode(&place, name, bits);
    }
    let (_folder, program) = copied::for_everybody(Path::new(env!("CARGO_BIN_EXE_tenure")));
    let mut said = String::new();
    for (args, code) in [
        (&["serve", "--config", "secret.toml"][..], 2),
        (&["run", "secret.toml"], 2),
        (&["config", "--config", "secret.toml"], 2),
        (&["serve", "--store", "sqlite:store.db"], 7),
        (&["serve", "--store", "sqlite:closed/tenure.db"], 7),
        (&["serve", "--store", "sqlite:closed/below/tenure.db"], 7),
        (&["serve", "--store", "sqlite:open/tenure.db", "--workspace", "closed/files"], 2),
        (&["tasks", "list", "--store", "sqlite:store.db"], 7),
    ] {
        let mut command = place.command_of(&program, args);
        command.env("TENURE_LISTEN", "127.0.0.1:0");
        if am_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        said.push_str(&format!("$ tenure {}\n{}", args.join(" "), redacted(&err, &place)));
        assert_eq!((output.status.code(), out.as_str()), (Some(code), ""), "{said}");
    }
    assert!(!said.contains("hunter2") && !said.contains("os error"), "{said}");
    assert_eq!(std::fs::read_dir(place.path("closed")).unwrap().count(), 0);
    insta::assert_snapshot!("no_permission", said);
    // So that it can be removed.
    mode(&place, "closed", 0o755);
}

//! `docs/CLI.md` says what the program says of itself.
#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CLI.md");
    let said = Command::new(env!("CARGO_BIN_EXE_tenure")).arg("reference").env_clear().output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let page = String::from_utf8(said.stdout).unwrap();
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/CLI.md does not say what the program says: write it anew with \
         `TENURE_BLESS=1 cargo test --test cli_doc`, and read what changed"
    );
}

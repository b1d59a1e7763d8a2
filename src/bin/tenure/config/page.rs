//! `docs/CONFIGURATION.md` is written from the table of settings.

use std::fmt::Write as _;
use std::path::Path;

use super::sections::Config;
use super::table::TABLE;

/// What the page says of what is no setting: agents and tasks.
const PROSE: &str = include_str!("page.md");

#[test]
fn the_page_of_the_configuration_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIGURATION.md");
    let page = page();
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/CONFIGURATION.md does not say what the table of settings says: write it anew with \
         `TENURE_BLESS=1 cargo test --bin tenure page_of_the_configuration`, and read what changed"
    );
}

#[test]
fn every_name_in_the_table_is_there_once() {
    let mut names: Vec<&str> = TABLE
        .iter()
        .flat_map(|setting| [Some(setting.key), Some(setting.env), setting.flag])
        .flatten()
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn every_default_is_read_as_itself() {
    let default = Config::default();
    for setting in TABLE {
        let Some(text) = (setting.get)(&default) else { continue };
        let mut config = Config::default();
        (setting.set)(&mut config, &text).unwrap();
        assert_eq!((setting.get)(&config).as_deref(), Some(text.as_str()), "{}", setting.key);
    }
}

fn page() -> String {
    let (before, after) = PROSE.split_once("<!-- settings -->\n").unwrap();
    let mut page = before.to_owned();
    let mut section = "";
    for setting in TABLE {
        let (in_section, key) = setting.key.split_once('.').unwrap();
        if in_section != section {
            section = in_section;
            write!(
                page,
                "### `[{section}]`\n\n| key | default | variable | flag | meaning |\n|---|---|---|---|---|\n"
            )
            .unwrap();
            // The table ends where the next section begins.
        }
        let default = (setting.get)(&Config::default()).map_or_else(String::new, |text| format!("`{text}`"));
        let flag = setting.flag.map_or_else(String::new, |flag| format!("`--{flag}`"));
        let restart = if setting.restart { " A change needs a new start." } else { "" };
        let meaning = setting.meaning.replace('|', "\\|");
        writeln!(page, "| `{key}` | {default} | `{}` | {flag} | {meaning}{restart} |", setting.env).unwrap();
        let last = TABLE.iter().rfind(|other| other.key.starts_with(&format!("{section}."))).unwrap();
        if last.key == setting.key {
            page.push('\n');
        }
    }
    page.push_str(after);
    page
}

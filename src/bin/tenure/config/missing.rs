//! Files that are near one that is not there.

use std::path::Path;

use crate::commands::near::nearest;

/// The most names of a folder that are looked at.
const LOOKED_AT: usize = 1000;

/// Files of TOML beside one that is not there, whose names differ little from its name: `"hello.toml" or "help.toml"`.
pub(crate) fn near_files(missing: &Path) -> Option<String> {
    let folder = missing.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or_else(|| Path::new("."))).ok()?;
    let names = entries.take(LOOKED_AT).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    let wanted = missing.file_name()?.to_str()?;
    let near = nearest(wanted, names.iter().map(String::as_str));
    let shown = |name: &&str| format!("{:?}", folder.map_or_else(|| name.into(), |folder| folder.join(name)));
    let near: Vec<String> = near.iter().map(shown).collect();
    (!near.is_empty()).then(|| near.join(" or "))
}

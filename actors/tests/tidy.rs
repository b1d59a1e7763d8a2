//! The house rules that a machine can check, over the repository's own files.

use std::fs;
use std::io;
use std::path::Path;

/// What may lie at the top; dotted entries may as well, and `target` is no part of the repository.
const TOP: &[&str] =
    &["Cargo.lock", "Cargo.toml", "README.md", "actors", "benches", "docs", "examples", "src", "tests"];

/// The files that may start a task which no actor owns, each with its reason.
const MAY_SPAWN: &[&str] = &[
    // Answers that take time, and the close, which outlives the actors it closes.
    "actors/src/tasks.rs",
    // Work that blocks: one bounded piece on a thread made for it, which holds no authority.
    "src/tasks.rs",
    // What a driver reads from its socket, on the runtime of the store: it ends with the connection.
    "src/store/postgres/conn.rs",
];

const MOST_LINES: usize = 600;
const MOST_COLUMNS: usize = 120;

#[test]
fn modules_are_named_after_themselves() -> io::Result<()> {
    let found = repository()?
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.rsplit('/').next() == Some("mod.rs"))
        .map(|path| format!("{path}:1"));
    none("write a module as name.rs beside name/, never as mod.rs", found)
}

#[test]
fn files_fit_in_the_head() -> io::Result<()> {
    let found = repository()?
        .into_iter()
        .filter(|file| file.is_rust() && file.is_under(&["src/", "actors/src/"]))
        .filter(|file| file.text.lines().count() > MOST_LINES)
        .map(|file| format!("{}:{}", file.path, file.text.lines().count()));
    none(&format!("split files of more than {MOST_LINES} lines"), found)
}

#[test]
fn lines_fit_on_the_screen() -> io::Result<()> {
    let found = lines(File::is_rust, |line| line.chars().count() > MOST_COLUMNS)?;
    none(&format!("break lines of more than {MOST_COLUMNS} columns"), found)
}

#[test]
fn every_public_item_of_the_kernel_names_its_source() -> io::Result<()> {
    let files = repository()?;
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| &*file.text);
    let (text, table) = (text_of("actors/src/lib.rs"), text_of("actors/src/sources.md"));
    let code: String = text.lines().filter(|line| !line.starts_with("//")).collect();
    let exported = code.split("pub use ").skip(1).filter_map(|uses| uses.split(';').next());
    let names: Vec<&str> = exported
        .flat_map(|uses| uses.split(&[' ', ',', '{', '}'][..]))
        .filter_map(|name| name.rsplit("::").next())
        .filter(|name| !name.is_empty() && *name != "ractor")
        .collect();
    assert!(names.len() > 50, "the exports were not read: {names:?}");
    let missing = names.into_iter().filter(|name| !table.contains(&format!("[`{name}`]")));
    none("name the source of what is public in actors/src/sources.md", missing.map(str::to_owned))
}

#[test]
fn nothing_is_left_to_do() -> io::Result<()> {
    let marks =
        [concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("FIX", "ME"), concat!("XX", "X")];
    let found = lines(File::is_rust, |line| marks.iter().any(|mark| line.contains(mark)))?;
    none("do it now, or say in the documentation that it is absent", found)
}

#[test]
fn no_test_is_ignored() -> io::Result<()> {
    let found = lines(File::is_rust, |line| line.contains(concat!("#[ig", "nore")))?;
    none("a test runs, or it is deleted", found)
}

#[test]
fn tests_do_not_sleep() -> io::Result<()> {
    let sleeps = [concat!("thread::", "sleep"), concat!("time::", "sleep")];
    let found = lines(
        |file| file.is_rust() && file.is_under(&["tests/", "actors/tests/"]),
        |line| is_code(line) && sleeps.iter().any(|sleep| line.contains(sleep)),
    )?;
    none("wait for a signal, or use the paused clock of a scenario (`at`)", found)
}

#[test]
fn tasks_belong_to_actors() -> io::Result<()> {
    let spawns = [concat!("tokio::", "spawn"), concat!("task::", "spawn(")];
    let found = lines(
        |file| file.is_rust() && file.is_under(&["src/", "actors/src/", "examples/"]) && !file.may_spawn(),
        |line| is_code(line) && spawns.iter().any(|spawn| line.contains(spawn)),
    )?;
    none(
        "let an actor own the task; if none can, add the file to MAY_SPAWN in this test, with the reason",
        found,
    )
}

#[test]
fn what_the_kernel_promises_of_dropped_futures_is_said() -> io::Result<()> {
    let mut found = Vec::new();
    for file in repository()?.iter().filter(|file| file.is_rust() && file.is_under(&["actors/src/"])) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("pub async fn ")) {
            let above = lines[..n].iter().rev();
            let mut said = above.take_while(|line| line.starts_with("///") || line.starts_with('#'));
            if !said.any(|line| line.starts_with("/// Cancel safety: ")) {
                found.push(format!("{}:{}: {line}", file.path, n + 1));
            }
        }
    }
    none("say after \"Cancel safety: \" what becomes of the call when its future is dropped", found)
}

#[test]
fn no_path_is_absolute() -> io::Result<()> {
    let found = lines(|_| true, names_a_place_of_one_machine)?;
    none("say where a file is from the root of the repository, or ask the system for a folder", found)
}

#[test]
fn the_top_holds_only_what_belongs_there() -> io::Result<()> {
    let allowed = |name: &str| {
        TOP.contains(&name) || name.starts_with('.') || name.starts_with("LICENSE-") || name == "target"
    };
    let found = entries(root())?.into_iter().filter(|name| !allowed(name)).map(|name| format!("{name}:1"));
    none("move the entry into one of the folders, or allow it in this test", found)
}

#[test]
fn no_line_ends_in_white_space() -> io::Result<()> {
    let found = lines(|_| true, |line| line.ends_with(char::is_whitespace))?;
    none("cut the white space at the end of the line", found)
}

#[test]
fn a_place_of_one_machine_is_told_from_other_paths() {
    let place = ["tmp", "root", "work", "home"].map(|top| [format!("/{top}"), format!("\"/{top}/x\"")]);
    for line in place.iter().flatten() {
        assert!(names_a_place_of_one_machine(line), "{line}");
    }
    for line in
        ["/workers", "src/work/x", "{base}/tmp/x", "https://tenure.example/work", "/dev/null", "a / root"]
    {
        assert!(!names_a_place_of_one_machine(line), "{line}");
    }
}

/// A text file of the repository; its path starts at the root.
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn may_spawn(&self) -> bool {
        MAY_SPAWN.contains(&self.path.as_str())
    }

    fn is_under(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| self.path.starts_with(folder))
    }
}

/// Fails with the rule and every place that breaks it.
fn none(rule: &str, places: impl IntoIterator<Item = String>) -> io::Result<()> {
    let places: Vec<String> = places.into_iter().collect();
    assert!(places.is_empty(), "{rule}:\n{}\n", places.join("\n"));
    Ok(())
}

/// The lines of these files that break a rule, as `file:line: text`.
fn lines(applies: impl Fn(&File) -> bool, breaks: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in repository()?.iter().filter(|file| applies(file)) {
        let broken = file.text.lines().enumerate().filter(|(_, line)| breaks(line));
        found.extend(broken.map(|(n, line)| format!("{}:{}: {}", file.path, n + 1, line.trim())));
    }
    Ok(found)
}

/// Whether the line is more than a comment, which may name what code may not.
fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

/// Whether a path in the line starts at the root of the file system and is a home, a temporary folder or the like.
fn names_a_place_of_one_machine(line: &str) -> bool {
    line.match_indices('/').any(|(at, _)| {
        let continues = |c: char| c.is_alphanumeric() || "_-./}>)*~".contains(c);
        let top = line[at + 1..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next();
        !line[..at].ends_with(continues) && matches!(top, Some("home" | "root" | "tmp" | "work"))
    })
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Every text file but those that git ignores: what is built, and dotted folders other than `.ci`.
fn repository() -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for name in entries(root())? {
        let is_dotted_folder = name.starts_with('.') && root().join(&name).is_dir();
        // In a linked worktree `.git` is a file.
        if name != "target" && name != ".git" && (name == ".ci" || !is_dotted_folder) {
            collect(name, &mut files)?;
        }
    }
    assert!(
        files.iter().any(|file| file.path == "actors/tests/tidy.rs"),
        "these are not the repository's files"
    );
    Ok(files)
}

fn collect(path: String, files: &mut Vec<File>) -> io::Result<()> {
    let place = root().join(&path);
    if place.is_dir() {
        for name in entries(&place)? {
            collect(format!("{path}/{name}"), files)?;
        }
    } else if let Ok(text) = String::from_utf8(fs::read(place)?) {
        files.push(File { path, text });
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

//! Paths that users and agents give, checked before any file is touched.

use super::error::{NoName, PathProblem, WorkspaceError, shown};

const MOST_BYTES: usize = 1024;
const MOST_NAME_BYTES: usize = 255;

/// The names of a relative path, the last of which is the file's. Never empty.
///
/// This is about telling what is wrong with it; that nothing leaves the folder is guaranteed when it is opened.
pub(super) fn names(path: &str, most: usize) -> Result<Vec<&str>, WorkspaceError> {
    let refuse = |problem| Err(WorkspaceError::Path { path: shown(path), problem });
    if path.is_empty() {
        return refuse(PathProblem::Empty);
    }
    if path.len() > MOST_BYTES {
        return refuse(PathProblem::TooLong);
    }
    // A backslash separates names on other systems.
    if path.contains(['\0', '\\']) {
        return refuse(PathProblem::Character);
    }
    if path.starts_with('/') {
        return refuse(PathProblem::Absolute);
    }
    let names: Vec<&str> = path.split('/').collect();
    match names.iter().find_map(|name| problem(name)) {
        Some(problem) => refuse(problem),
        None if names.len() > most => refuse(PathProblem::TooDeep(most)),
        None => Ok(names),
    }
}

fn problem(name: &str) -> Option<PathProblem> {
    match name {
        "" => Some(PathProblem::NoName(NoName::Nothing)),
        "." => Some(PathProblem::NoName(NoName::Here)),
        ".." => Some(PathProblem::NoName(NoName::Parent)),
        _ if name.len() > MOST_NAME_BYTES => Some(PathProblem::TooLong),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str) -> String {
        match names(path, 3) {
            Ok(names) => names.join(" > "),
            Err(refused) => refused.to_string(),
        }
    }

    #[test]
    fn only_relative_paths_of_plain_names_are_taken() {
        let long = "x".repeat(256);
        let longer = vec!["y".repeat(200); 6].join("/");
        let paths = ["a", "a/b.md", "...", "a/b/c", "ä b/~", "a\nb"]
            .into_iter()
            .chain(["", "/", "/etc/passwd", "..", "a/../b", "../a", "a/..", ".", "./a", "a//b", "a/"])
            .chain(["a\0b", "a\\b", "..\\a", "a/b/c/d", &long, &longer]);
        let told: Vec<String> = paths.map(check).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}

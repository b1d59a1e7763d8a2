//! What was meant by a file that is not there: another file, or a command that takes the name of a task.

use std::path::Path;

use crate::config;
use crate::exit::Failure;

/// The commands of `tenure runs`.
const OF_RUNS: [&str; 6] = ["list", "show", "wait", "cancel", "retry", "resume"];

/// The same failure, with what may have been meant if the file is not there.
pub(super) fn explained(failure: Failure, file: &Path) -> Failure {
    if file.exists() {
        return failure;
    }
    let near = config::near_files(file);
    let name = file.to_string_lossy();
    let command = match &*name {
        name if OF_RUNS.contains(&name) => Some(format!("`tenure runs {name}`")),
        name if name.contains(['/', '.']) => None,
        name => Some(format!("`tenure tasks run {name}`, for a task that is stored")),
    };
    let meant: Vec<String> = command.into_iter().chain(near).collect();
    if meant.is_empty() {
        return failure.hint("`tenure run` takes the file with the task: tenure run FILE");
    }
    failure.hint(format!("did you mean {}? `tenure run` takes a file", meant.join(", or ")))
}

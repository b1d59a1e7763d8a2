//! Whether the programs that agents run are there, and the variables that hold their keys are set.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tenure::agents::AgentDefinition;
use tenure::model::AgentId;

use super::Finding;

pub(super) fn look(agents: &BTreeMap<AgentId, AgentDefinition>, found: &mut Vec<Finding>) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    for (agent_id, definition) in agents {
        found.push(of_agent(agent_id, definition, &path, &is_set));
    }
}

fn of_agent(
    agent_id: &AgentId,
    definition: &AgentDefinition,
    path: &OsStr,
    is_set: &dyn Fn(&str) -> bool,
) -> Finding {
    match definition {
        AgentDefinition::Command(agent) => {
            let program = agent.command.first().map_or("", String::as_str);
            let folder = agent.working_directory.as_deref();
            match program_at(program, folder, path) {
                Some(place) => Finding::ok("agent", format!("{agent_id}: runs \"{}\"", place.display())),
                None => Finding::fail("agent", format!("{agent_id}: the program \"{program}\" is not found"))
                    .hint("install it, write its whole path, or look at PATH"),
            }
        }
        AgentDefinition::Chat(agent) => variables(agent_id, agent.api_key_env.iter(), is_set),
        AgentDefinition::Http(agent) => variables(agent_id, agent.headers_env.values(), is_set),
    }
}

fn variables<'a>(
    agent_id: &AgentId,
    names: impl Iterator<Item = &'a String>,
    is_set: &dyn Fn(&str) -> bool,
) -> Finding {
    let missing: Vec<&str> = names.map(String::as_str).filter(|name| !is_set(name)).collect();
    if missing.is_empty() {
        return Finding::ok("agent", format!("{agent_id}: every variable it needs is set"));
    }
    Finding::fail("agent", format!("{agent_id}: {} is not set", missing.join(", ")))
        .hint("set it in the environment of the server")
}

/// Where a program is, as the system would look for it.
fn program_at(program: &str, folder: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    if program.is_empty() {
        return None;
    }
    if program.contains('/') {
        // Without a folder it runs in that of its run: what is relative is there or not, nobody knows yet.
        let place = folder.map_or_else(|| PathBuf::from(program), |folder| folder.join(program));
        return can_run(&place).then_some(place);
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|place| can_run(place))
}

#[cfg(unix)]
fn can_run(place: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    place.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn can_run(place: &Path) -> bool {
    place.is_file()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn state(json: &str, path: &str) -> State {
        let definition: AgentDefinition = serde_json::from_str(json).unwrap();
        let agent_id = AgentId::new("a").unwrap();
        of_agent(&agent_id, &definition, OsStr::new(path), &|name| name == "SET").state
    }

    #[test]
    fn programs_are_looked_for_as_the_system_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("data"), "").unwrap();
        let own = std::env::current_exe().unwrap();
        let (bin, name) =
            (own.parent().unwrap().to_str().unwrap(), own.file_name().unwrap().to_str().unwrap());
        let command = |program: &str| format!(r#"{{"kind": "command", "command": [{program:?}]}}"#);
        assert_eq!(state(&command(name), &format!("{path}:{bin}")), State::Ok);
        assert_eq!(state(&command(name), path), State::Fail);
        assert_eq!(state(&command("data"), path), State::Fail);
        assert_eq!(state(&command(own.to_str().unwrap()), path), State::Ok);
    }

    #[test]
    fn variables_of_keys_have_to_be_set() {
        let chat = |name| {
            format!(r#"{{"kind": "chat", "base_url": "http://x", "model": "m", "api_key_env": {name}}}"#)
        };
        assert_eq!(state(&chat("\"SET\""), ""), State::Ok);
        assert_eq!(state(&chat("\"UNSET\""), ""), State::Fail);
        assert_eq!(state(&chat("null"), ""), State::Ok);
        let http = r#"{"kind": "http", "url": "http://x", "headers_env": {"A": "SET", "B": "UNSET"}}"#;
        assert_eq!(state(http, ""), State::Fail);
    }
}

//! Who types: kept with what they do to the work of others.

/// Where the system tells what it is called.
const NAMES_OF_THE_MACHINE: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/hostname"];

/// The longest name of a user or a machine that is told.
const MOST: usize = 100;

/// `alice@build-7`: this user at this machine, as far as the system tells.
pub(crate) fn this_user() -> String {
    let user =
        ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().and_then(|name| told(&name)));
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
    let machine = NAMES_OF_THE_MACHINE.iter().find_map(|file| told(&std::fs::read_to_string(file).ok()?));
    machine.map_or_else(|| user.clone(), |machine| format!("{user}@{machine}"))
}

fn told(name: &str) -> Option<String> {
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(MOST).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_that_can_be_told() {
        assert_eq!(told(" alice\n").as_deref(), Some("alice"));
        assert_eq!(told("a\u{1b}b").as_deref(), Some("ab"));
        assert_eq!(told(" \n"), None);
        assert_eq!(told(&"x".repeat(1000)).map(|name| name.len()), Some(MOST));
        let user = this_user();
        assert!(!user.is_empty() && user.len() <= 255, "{user}");
    }
}

//! A host that is killed takes its programs with it, by the process beside it that it leaves behind.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::*;

/// A tree of processes that do not listen, some of them in the background; all hold the connection. The first line
/// that it says is where progress is told.
const TREE: &str = "trap '' TERM HUP INT; exec 9<>/dev/tcp/127.0.0.1/$CANARY; \
                    env -i sleep 1000 & (sleep 1000 & sleep 1000) & echo $TENURE_PROGRESS >&9; \
                    sleep 1000; sleep 1000";
/// One more, which has left the group.
const AWAY: &str = "exec 9<>/dev/tcp/127.0.0.1/$CANARY; \
                    setsid bash -c 'echo $TENURE_PROGRESS >&9; sleep 1000 & sleep 1000' & sleep 1000";

struct Stage {
    place: Place,
    canary: TcpListener,
}

/// What the whole tree of one program holds.
struct Held {
    stream: BufReader<TcpStream>,
    /// Where it tells its progress.
    socket: PathBuf,
}

impl Stage {
    fn with(program: &str) -> Self {
        let canary = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = canary.local_addr().unwrap().port();
        let config = format!(
            "[agents.tree]\nkind = \"command\"\ncommand = [\"bash\", \"-c\", {program:?}]\n\
             env = {{ CANARY = \"{port}\" }}\n\
             [agents.quick]\nkind = \"command\"\ncommand = [\"true\"]\n\
             [tasks.t]\nagent_id = \"tree\"\nquery = \"q\"\noverlap_policy = \"allow_parallel\"\n\
             [tasks.quick]\nagent_id = \"quick\"\nquery = \"q\"\n"
        );
        Self { place: Place::with(&config), canary }
    }

    fn held(&self) -> Held {
        self.canary.set_nonblocking(true).unwrap();
        let mut accepted = None;
        until("the program runs", || {
            accepted = self.canary.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(MOST)).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let socket = PathBuf::from(line.trim().strip_prefix("unix:").unwrap());
        assert!(socket.exists());
        Held { stream, socket }
    }
}

impl Held {
    /// Waits until nothing of the tree is left; answers where it could tell its progress.
    fn gone(mut self) -> PathBuf {
        let mut rest = Vec::new();
        let ended = self.stream.read_to_end(&mut rest);
        // Reset, if somebody died with something unread: gone as well.
        let ended = ended.map_err(|error| error.kind());
        assert!(matches!(ended, Ok(_) | Err(std::io::ErrorKind::ConnectionReset)), "it lives on: {ended:?}");
        self.socket
    }
}

/// The janitor of a host, once its shell runs.
fn janitor_of(host: u32) -> Option<String> {
    let is_its = |id: &String| {
        let read = |name: &str| std::fs::read_to_string(Path::new("/proc").join(id).join(name)).ok();
        let parent = read("stat").and_then(|stat| {
            let rest = stat.rsplit(") ").next()?.to_owned();
            rest.split(' ').nth(1)?.parse::<u32>().ok()
        });
        let is_shell = read("cmdline").is_some_and(|line| line.split('\0').any(|word| word == "janitor"));
        parent == Some(host) && is_shell
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).find(is_its)
}

/// The same, when there must be one.
fn janitor(host: u32) -> String {
    let mut found = None;
    until("there is a janitor", || {
        found = janitor_of(host);
        found.is_some()
    });
    found.unwrap()
}

fn nothing_is_left(janitor: &str, socket: &Path) {
    until("the janitor is gone", || is_gone(janitor));
    assert!(!socket.parent().unwrap().exists(), "the folder of the socket stays behind: {socket:?}");
}

#[test]
fn task_t45_a_killed_server_takes_the_trees_of_its_programs_with_it() {
    let stage = Stage::with(TREE);
    let server = stage.place.serve(&[]);
    server.run("t");
    let first = stage.held();
    server.run("t");
    let second = stage.held();
    let janitor = janitor(server.started.id());
    server.started.kill();
    first.gone();
    let socket = second.gone();
    nothing_is_left(&janitor, &socket);
}

#[test]
fn task_t45_what_had_left_its_group_ends_with_a_killed_server_as_well() {
    let stage = Stage::with(AWAY);
    let server = stage.place.serve(&[]);
    server.run("t");
    let held = stage.held();
    let janitor = janitor(server.started.id());
    server.started.kill();
    nothing_is_left(&janitor, &held.gone());
}

#[test]
fn task_t45_a_killed_run_in_the_foreground_takes_its_tree_with_it() {
    let stage = Stage::with(TREE);
    let run = stage.place.start(&["run", "tenure.toml", "t"]);
    let held = stage.held();
    let janitor = janitor(run.id());
    run.kill();
    nothing_is_left(&janitor, &held.gone());
}

#[test]
fn a_janitor_that_is_killed_is_replaced_and_the_next_one_knows_what_runs() {
    let stage = Stage::with(TREE);
    let mut server = stage.place.serve(&[]);
    server.run("t");
    let before = stage.held();
    let first = janitor(server.started.id());
    kill_process(Pid::from_raw(first.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    server.started.error("another one takes over");
    let second = janitor(server.started.id());
    assert_ne!(first, second);
    server.run("t");
    let after = stage.held();
    server.started.kill();
    before.gone();
    nothing_is_left(&second, &after.gone());
}

/// Whether a process ignores a signal.
fn ignores(id: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn task_t44_a_server_that_ends_in_order_leaves_no_janitor() {
    let stage = Stage::with(TREE);
    let server = stage.place.serve(&[]);
    let quick = server.run("quick");
    server.until(&quick, "completed");
    let janitor = janitor(server.started.id());
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    until("it has begun", || signals.iter().all(|signal| ignores(&janitor, *signal)));
    for signal in signals {
        kill_process(Pid::from_raw(janitor.parse().unwrap()).unwrap(), signal).unwrap();
    }
    assert!(!is_gone(&janitor), "what is meant for the host does not end it");
    server.started.signal(Signal::TERM);
    let done = server.started.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!done.err.contains("janitor"), "{done:?}");
    until("the janitor is gone", || is_gone(&janitor));
}

#[test]
fn a_server_that_runs_no_program_has_no_janitor() {
    let stage = Stage::with(TREE);
    let server = stage.place.serve(&[]);
    assert_eq!(janitor_of(server.started.id()), None);
    server.started.signal(Signal::TERM);
    assert_eq!(server.started.done().code, Some(0));
}

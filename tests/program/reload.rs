//! SIGHUP: the generation is replaced, and what the old one answers late is dropped.

use rustix::process::Signal;

use crate::kit::*;

fn echo(text: &str, more: &str) -> String {
    format!(
        "[agents.sh]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo {text}\"]\n\
         [tasks.t]\nquery = \"q\"\noverlap_policy = \"allow_parallel\"\n{more}"
    )
}

fn answer_of(server: &Server) -> String {
    let answer = server.post("/background/tasks/t/run", r#"{"wait": true}"#);
    assert_eq!((answer.status, &answer.body["status"]), (200, &"completed".into()), "{answer:?}");
    answer.body["result_preview"].as_str().unwrap().trim().to_owned()
}

#[test]
fn a_configuration_that_is_read_again_holds_at_once() {
    let place = Place::with(&echo("before", ""));
    let mut server = place.serve(&["--log", "debug"]);
    assert_eq!(answer_of(&server), "before");
    let more = "[tasks.u]\nquery = \"q\"\n[workspace]\nroot = \"elsewhere\"\n[worker]\nlease = 12\n";
    place.write("tenure.toml", echo("after", more));
    server.started.signal(Signal::HUP);
    let warned = server.started.error("needs a new start");
    assert!(warned.contains("workspace.root"), "{warned}");
    let told = server.started.error("reloaded");
    assert!(told.contains("reloaded tenure.toml: 1 task new; 1 agent changed"), "{told}");
    server.started.error("the generation before it is closed");
    assert_eq!(answer_of(&server), "after");
    assert_eq!(server.get("/background/tasks/u").status, 200);
    assert_eq!(server.get("/background/status").body["lease_seconds"], 12);
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing() {
    let place = Place::with(&echo("before", ""));
    let mut server = place.serve(&["--log", "debug"]);
    place.write("tenure.toml", echo("after", "concurency = 3\n"));
    server.started.signal(Signal::HUP);
    let logged = server.started.error("the configuration stays as it was");
    assert!(
        logged.contains("tenure.toml:7:1: \"tasks.t.concurency\": unknown field `concurency`"),
        "in one line: {logged}"
    );
    assert_eq!(answer_of(&server), "before");
    place.write("tenure.toml", echo("after", ""));
    server.started.signal(Signal::HUP);
    server.started.error("the generation before it is closed");
    assert_eq!(answer_of(&server), "after");
}

/// The first attempt does not listen when it is told to stop, and answers after its generation was replaced.
const LATE: &str = "[agents.late]\nkind = \"command\"\nstop_grace_seconds = 30\ncommand = [\"sh\", \"-c\", '''\n\
    trap '' TERM\ntouch began\nif [ $TENURE_ATTEMPT = 1 ]; then until [ -e go ]; do sleep 0.02; done; fi\n\
    echo \"attempt $TENURE_ATTEMPT\"''']\n[tasks.late]\nquery = \"q\"\nagent_id = \"late\"\n";

#[test]
fn a_result_of_the_generation_before_is_dropped_and_others_are_not_disturbed() {
    let place = Place::with(&format!("{}{LATE}", echo("x", "agent_id = \"sh\"\n")));
    let mut server = place.serve(&["--log", "debug"]);
    let late = server.run("late");
    let run = server.until(&late, "running");
    let folder = place.path(".tenure/workspace").join(run["workspace_path"].as_str().unwrap());
    until("the program runs", || folder.join("began").exists());
    let mut accepted: Vec<String> = (0..20).map(|_| server.run("t")).collect();
    server.started.signal(Signal::HUP);
    let told = server.started.error("reloaded tenure.toml: ");
    assert!(told.contains("queued again"), "{told}");
    accepted.extend((0..20).map(|_| server.run("t")));
    std::fs::write(folder.join("go"), "").unwrap();
    let closed = server.started.error("the generation before it is closed");
    assert!(!closed.contains("dropped 0"), "{closed}");
    let run = server.until(&late, "completed");
    assert_eq!(
        run["result_preview"], "attempt 2\n",
        "the late answer of the first attempt has no effect: {run}"
    );
    assert_eq!((&run["interruptions"], &run["failures"]), (&1.into(), &0.into()));
    for id in &accepted {
        server.until(id, "completed");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_comes_before_the_host_is_there_is_heard_by_it() {
    let place = Place::with("");
    let fifo = place.path("fifo.toml");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let mut started = place.start(&["serve", "--listen", "127.0.0.1:0", "--config", "fifo.toml"]);
    // It opens when the host begins to read: long before it listens, and before it has read anything.
    let mut first = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    started.signal(Signal::HUP);
    std::io::Write::write_all(&mut first, b"[worker]\nlease = 12\n").unwrap();
    drop(first);
    let address = started.line("listening on http://").trim_start_matches("listening on http://").to_owned();
    // Read again, as the signal asked for.
    std::fs::write(&fifo, "[worker]\nlease = 15\n").unwrap();
    started.error("reloaded");
    let server = Server { started, address };
    until("the second holds", || server.get("/background/status").body["lease_seconds"] == 15);
}

/// Between the moment in which a process is there and that in which a program in it runs nobody but its parent can say
/// what a signal does.
#[test]
fn no_signal_ends_a_host_whose_parent_ignored_it_from_the_first_moment_on() {
    let place = Place::with("");
    let mut command = std::process::Command::new("sh");
    let script = "trap '' HUP; echo begins; exec \"$0\" serve --listen 127.0.0.1:0";
    command.args(["-c", script, env!("CARGO_BIN_EXE_tenure")]).current_dir(place.path("."));
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut started = place.start_with(command);
    started.line("begins");
    let id = rustix::process::Pid::from_raw(i32::try_from(started.id()).unwrap()).unwrap();
    let listens = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = std::time::Instant::now();
            while !listens.load(std::sync::atomic::Ordering::Relaxed) && began.elapsed() < MOST {
                rustix::process::kill_process(id, Signal::HUP).unwrap();
                std::thread::yield_now();
            }
        });
        started.line("listening on http://");
        listens.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // The last of them came after it was there.
    started.error("reloaded");
    started.signal(Signal::TERM);
    assert_eq!(started.done().code, Some(0));
}

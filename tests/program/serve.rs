//! `tenure serve`: its beginning and its end.

use rustix::process::Signal;

use crate::kit::*;

/// A host with a task that goes on until its folder holds a file `go`.
fn waits(worker: &str) -> Place {
    Place::with(&format!(
        "[agents.sh]\nkind = \"command\"\nstop_grace_seconds = 0.1\n\
         command = [\"sh\", \"-c\", \"touch began; until [ -e go ]; do sleep 0.02; done; echo went on\"]\n\
         [tasks.t]\nquery = \"q\"\n[worker]\n{worker}\n"
    ))
}

fn folder(place: &Place, run: &serde_json::Value) -> std::path::PathBuf {
    place.path(".tenure/workspace").join(run["workspace_path"].as_str().unwrap())
}

/// Wants a run, and waits until its program runs.
fn begun(place: &Place, server: &Server) -> (String, std::path::PathBuf) {
    let id = server.run("t");
    let folder = folder(place, &server.until(&id, "running"));
    until("the program runs", || folder.join("began").exists());
    (id, folder)
}

#[test]
fn a_server_says_in_one_line_that_it_is_ready_and_ends_when_it_is_told() {
    let place = waits("");
    let server = place.serve(&[]);
    let status = server.get("/background/status").body;
    assert_eq!(
        (&status["running"], &status["agents"], &status["tasks"]),
        (&true.into(), &1.into(), &1.into())
    );
    server.started.signal(Signal::TERM);
    let address = server.address.clone();
    let done = server.started.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.out, format!("listening on http://{address}\n"));
}

#[test]
fn a_service_manager_is_told_when_it_serves_and_when_it_stops() {
    use std::os::unix::net::UnixDatagram;
    let place = waits("");
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(MOST)).unwrap();
    let told = || {
        let mut line = [0; 64];
        let read = manager.recv(&mut line).unwrap();
        String::from_utf8(line[..read].to_vec()).unwrap()
    };
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut started = place.start_with({
        command.env("NOTIFY_SOCKET", place.path("notify"));
        command
    });
    assert_eq!(told(), "READY=1");
    started.signal(Signal::HUP);
    started.error("reloaded");
    started.signal(Signal::TERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(started.done().code, Some(0));
}

#[test]
fn a_log_for_machines_is_json_line_by_line() {
    let place = waits("");
    let server = place.serve(&["--log-format", "json", "--log", "info"]);
    server.started.signal(Signal::INT);
    let done = server.started.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.lines().count() >= 2, "{done:?}");
    for line in done.err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
    }
}

#[test]
fn task_t44_a_server_that_is_told_to_stop_lets_attempts_end() {
    let place = waits("");
    let mut server = place.serve(&[]);
    let (id, folder) = begun(&place, &server);
    server.started.signal(Signal::TERM);
    server.started.error("told to stop");
    let refused = server.post("/background/tasks/t/run", "{}");
    assert_eq!(refused.status, 503, "nothing new begins: {refused:?}");
    assert_eq!(server.run_of(&id)["status"], "running", "who looks is answered meanwhile");
    std::fs::write(folder.join("go"), "").unwrap();
    assert_eq!(server.started.done().code, Some(0));
    let again = place.serve(&[]);
    let run = again.run_of(&id);
    assert_eq!((&run["status"], &run["attempt"]), (&"completed".into(), &1.into()), "{run}");
}

#[test]
fn task_t44_what_does_not_end_in_time_is_interrupted_and_the_exit_code_says_so() {
    let place = waits("drain = 0.2");
    let server = place.serve(&[]);
    let (id, _) = begun(&place, &server);
    server.started.signal(Signal::TERM);
    let done = server.started.done();
    assert_eq!(done.code, Some(9), "{done:?}");
    let again = place.serve(&[]);
    let run = again.until(&id, "running");
    assert_eq!(run["interruptions"], 1, "{run}");
    std::fs::write(folder(&place, &run).join("go"), "").unwrap();
    let run = again.until(&id, "completed");
    assert_eq!((&run["failures"], &run["attempt"]), (&0.into(), &2.into()), "no retry is spent");
}

#[test]
fn task_t44_a_second_signal_forces() {
    let place = waits("drain = 60");
    let mut server = place.serve(&[]);
    begun(&place, &server);
    server.started.signal(Signal::TERM);
    server.started.error("told to stop");
    server.started.signal(Signal::TERM);
    let done = server.started.done();
    assert_eq!(done.code, Some(130), "{done:?}");
}

#[test]
fn a_task_that_was_paused_stays_so_over_a_new_start() {
    let place = waits("");
    let server = place.serve(&[]);
    assert_eq!(server.post("/background/tasks/t/pause", "{}").status, 200);
    server.started.signal(Signal::TERM);
    server.started.done();
    let again = place.serve(&[]);
    assert_eq!(again.get("/background/tasks/t").body["enabled"], false);
}

#[test]
fn a_token_is_asked_for_where_there_is_one() {
    let place = waits("");
    let mut command = place.command(&["serve", "--listen", "0.0.0.0:0"]);
    command.env("TENURE_TOKEN", "hunter2-and-a-long-one");
    let mut started = place.start_with(command);
    let line = started.line("listening on http://");
    let port = line.rsplit(':').next().unwrap().to_owned();
    let server = Server { started, address: format!("127.0.0.1:{port}") };
    assert_eq!(server.get("/background/status").status, 401);
    assert_eq!(server.get("/healthz").status, 200);
    server.started.signal(Signal::TERM);
    let done = server.started.done();
    assert_eq!(done.code, Some(0));
    assert!(!done.err.contains("hunter2"), "{}", done.err);
}

#[test]
fn the_environment_names_the_file_the_store_and_the_address() {
    let place = waits("");
    std::fs::rename(place.path("tenure.toml"), place.path("other.toml")).unwrap();
    let mut command = place.command(&["serve"]);
    command.env("TENURE_CONFIG", "other.toml").env("TENURE_STORE", "sqlite:elsewhere/x.db");
    command.env("TENURE_LISTEN", "127.0.0.1:0");
    let mut started = place.start_with(command);
    let address = started.line("listening on http://").trim_start_matches("listening on http://").to_owned();
    let server = Server { started, address };
    assert_eq!(server.get("/background/tasks/t").status, 200);
    assert!(place.path("elsewhere/x.db").exists());
}

#[test]
fn a_store_that_is_deleted_under_a_server_is_missed_and_nothing_is_taken_any_more() {
    let place = waits("");
    let mut server = place.serve(&[]);
    assert_eq!(server.get("/readyz").status, 200);
    let (file, aside) = (place.path(".tenure/tenure.db"), place.path(".tenure/aside.db"));
    std::fs::rename(&file, &aside).unwrap();
    until("it is missed", || server.get("/readyz").status == 503);
    let logged = server.started.error("deleted or replaced");
    assert!(logged.contains("tenure.db"), "{logged}");
    let refused = server.post("/background/tasks/t/pause", "{}");
    assert_eq!(
        (refused.status, &refused.body["type"]),
        (503, &"urn:tenure:problem:store_unavailable".into())
    );
    let told = refused.body["detail"].as_str().unwrap();
    assert!(told.contains("was deleted or replaced while it was open"), "{told}");
    assert_eq!(server.get("/healthz").status, 200);
    std::fs::rename(&aside, &file).unwrap();
    until("it is back", || server.get("/readyz").status == 200);
    assert_eq!(server.post("/background/tasks/t/pause", "{}").status, 200);
}

#[test]
fn own_s1_2_two_servers_on_one_file_keep_who_owns_what_for_any_language() {
    let place = Place::with(crate::owned::CONFIG);
    let (one, other) = (place.serve(&[]), place.serve(&[]));
    crate::owned::play(&one, &other, "chat-7");
}

/// A store that takes the call and says nothing: whoever opens it waits for a long time.
#[cfg(feature = "postgres")]
#[test]
fn who_waits_for_a_store_that_says_nothing_ends_when_it_is_told() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("postgres://u@{}/d", silent.local_addr().unwrap());
    let place = waits("");
    for (command, code) in [(&["serve", "--listen", "127.0.0.1:0"][..], 0), (&["run", "tenure.toml"], 6)] {
        let started = place.start(&[command, &["--store", &store]].concat());
        let call = silent.accept().unwrap();
        started.signal(Signal::TERM);
        let done = started.done();
        assert_eq!((done.code, &*done.out), (Some(code), ""), "{done:?}");
        drop(call);
    }
}

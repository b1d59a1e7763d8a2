//! A server and the store give the same answers: every command that looks, asked both ways.

use crate::acting::CONFIG;
use crate::program::{Place, Server};

/// A store on which much has happened, with its server.
fn lived_in() -> (Place, Server) {
    let place = Place::with(CONFIG);
    let run = |line: &str| place.run(&crate::program::words(line));
    run("tasks add echo --agent echo --query 'All is well.' --metadata '{\"n\":1.00}' --priority 3").well();
    run("tasks add broken --agent broken --query 'What now?' --retries 1 --retry-delay 0").well();
    run("tasks add yearly --agent echo --query 'A new year.' --cron '0 0 1 1 *' --paused").well();
    run("tasks add later --agent elsewhere --query q --overlap queue_next").well();
    let server = place.serve();
    for task in ["echo", "echo", "broken"] {
        run(&format!("tasks run {task} --wait --url {}", server.url));
    }
    run("tasks run later").well();
    (place, server)
}

#[test]
fn a_server_and_the_store_give_the_same_answers() {
    let (place, server) = lived_in();
    let id = |status: &str| {
        let words = ["runs", "list", "-q", "--limit", "1", "--status", status];
        place.run(&words).well().out.trim().to_owned()
    };
    let (completed, failed, queued) = (id("completed"), id("failed"), id("queued"));
    let lines = [
        "tasks list".to_owned(),
        "tasks show echo".to_owned(),
        "tasks show yearly".to_owned(),
        "tasks show nothing".to_owned(),
        "tasks show eco".to_owned(),
        "tasks occurrences yearly --limit 5".to_owned(),
        "runs list".to_owned(),
        "runs list --limit 2".to_owned(),
        "runs list --status completed,failed --task echo".to_owned(),
        "runs list --agent broken --text now --after 1h --trigger manual".to_owned(),
        "runs list --before 2020-01-01".to_owned(),
        format!("runs show {completed} --events --files"),
        format!("runs show {failed} --events --files"),
        format!("runs show {queued}"),
        format!("runs cat {completed} output.md"),
        format!("runs cat {completed} nothing.md"),
        format!("runs show {}", &completed[..completed.len() - 1]),
        "runs show nothing".to_owned(),
        format!("runs wait {completed}"),
        format!("runs wait {failed}"),
        format!("runs wait {queued} --timeout 0"),
        format!("runs wait {completed} --timeout 0"),
        format!("runs wait {failed} --timeout 0"),
        "events".to_owned(),
        "events --after 3 --limit 4".to_owned(),
        "events --task echo".to_owned(),
        "events --task echo --limit 2".to_owned(),
        "events --limit 3".to_owned(),
        "runs list --task eco".to_owned(),
        format!("events --run {failed}"),
        format!("events --follow --run {completed}"),
        "events --run nothing".to_owned(),
        "agents".to_owned(),
        "agents show echo".to_owned(),
        "agents show nothing".to_owned(),
        "tasks pause nothing".to_owned(),
        format!("runs retry {queued}"),
        format!("runs resume {completed} --approve"),
        format!("runs cancel {completed}"),
    ];
    for line in &lines {
        for form in ["--utc", "--json", "--quiet"] {
            let words = |more: &[&str]| {
                let mut words = crate::program::words(line);
                words.extend(more.iter().map(|word| (*word).to_owned()));
                words
            };
            let served = place.run(&words(&[form, "--url", &server.url]));
            let stored = place.run(&words(&[form]));
            // To look at files brings run.json up to date, whoever looks.
            let shown = |out: &str| {
                if line.contains("--files") { crate::program::masked(out) } else { out.to_owned() }
            };
            assert_eq!(shown(&served.out), shown(&stored.out), "tenure {line} {form}");
            assert_eq!(served.err, stored.err, "tenure {line} {form}");
            assert_eq!(served.code(), stored.code(), "tenure {line} {form}");
        }
    }
}

#[test]
fn the_counts_of_the_store_are_those_of_its_server() {
    let (place, server) = lived_in();
    let served = place.run(&["status", "--json", "--url", &server.url]).well().json();
    let stored = place.run(&["status", "--json"]).well().json();
    for field in ["agents", "tasks", "runs", "active_runs", "status_counts", "lease_seconds"] {
        assert_eq!(served[field], stored[field], "{field}");
    }
    assert_eq!(
        (&served["running"], &stored["running"]),
        (&true.into(), &false.into()),
        "a store runs nothing"
    );
    let told = place.run(&["status"]).well().out;
    assert!(told.starts_with("host       none was asked"), "{told}");
    assert_ne!(served["worker_id"], stored["worker_id"], "each says who it is");
}

#[test]
fn task_t05_tasks_whose_agent_a_server_does_not_have_are_told_by_the_doctor_and_when_they_are_made() {
    let (place, server) = lived_in();
    let asked = ["--url", &*server.url];
    let doctor = place.run(&[&["doctor"][..], &asked].concat());
    let told = "later: the server does not have its agent \"elsewhere\"";
    assert!(doctor.out.contains(told), "{}", doctor.out);
    let add = ["tasks", "add", "more", "--agent", "elsewhere", "--query", "q"];
    let added = place.run(&[&add[..], &asked].concat()).well();
    let warning = "warning: this host does not have agent \"elsewhere\": its runs wait for one that has\n";
    assert_eq!(added.err, warning);
}

#[test]
fn a_server_has_a_tree_and_a_store_has_none_of_its_own() {
    let (place, server) = lived_in();
    let tree = place.run(&["tree", "--url", &server.url]).well().out;
    assert!(tree.starts_with("app\n`- g1  epoch 1, open\n   |- registry#1"), "{tree}");
    for service in ["heartbeat#1", "scheduler#1", "claimer#1", "housekeeper#1"] {
        assert!(tree.contains(service), "{service} is not in\n{tree}");
    }
    let stored = place.run(&["tree"]).well();
    assert!(stored.err.contains("ask a server for its tree with --url"), "{}", stored.err);
    assert!(!stored.out.contains("claimer"), "{}", stored.out);
}

#[test]
fn the_environment_names_the_server_and_a_flag_the_store() {
    let (place, server) = lived_in();
    let worker = |words: &[&str], url: &str| {
        let said = crate::program::said(place.command(words).env("TENURE_URL", url)).well();
        said.json()["worker_id"].as_str().unwrap().to_owned()
    };
    let served = worker(&["status", "--json"], &server.url);
    assert_eq!(served, worker(&["status", "--json"], &server.url), "one server, one name");
    let store = format!("sqlite:{}", ".tenure/tenure.db");
    assert_ne!(served, worker(&["status", "--json", "--store", &store], &server.url));
    assert_eq!(place.run(&["status", "--url", &server.url, "-q"]).well().out.trim(), served);
}

#[test]
fn a_server_with_a_token_is_told_it() {
    let place = Place::with(CONFIG);
    let server = place.serve_with_token("open-sesame");
    let asked = |token: &str| {
        let mut command = place.command(&["status", "--url", &server.url]);
        crate::program::said(command.env("TENURE_TOKEN", token))
    };
    asked("open-sesame").well();
    for wrong in ["", "open-barley"] {
        let refused = asked(wrong);
        assert_eq!(refused.code(), 8, "{}", refused.err);
        assert!(refused.err.contains("TENURE_TOKEN"), "{}", refused.err);
        assert!(!refused.err.contains("sesame"), "{}", refused.err);
    }
    let doctor =
        crate::program::said(place.command(&["doctor", "--url", &server.url]).env("TENURE_TOKEN", "wrong"));
    assert_eq!(doctor.code(), 1);
    assert!(doctor.out.contains("ok    server") && doctor.out.contains("fail  token"), "{}", doctor.out);
}

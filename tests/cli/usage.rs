//! What cannot be taken is told with what was expected, before anything is done.

use crate::program::Place;

#[test]
fn flags_that_make_no_sense_are_refused() {
    let place = Place::new();
    insta::assert_snapshot!(place.told_all(&[
        "tasks add",
        "tasks add ../up --agent a --query q",
        "tasks add t --every 0",
        "tasks add t --every 5x",
        "tasks add t --every 5m --cron '* * * * *'",
        "tasks add t --timeout -5m",
        "tasks add t --retries many",
        "tasks add t --overlap sometimes",
        "tasks edit t --timeout 5m --no-timeout",
        "tasks run",
        "tasks list --limit 0",
        "tasks list --limit 5 --all",
        "tasks list --json --quiet",
        "runs list --status failed,lots",
        "runs list --trigger whim",
        "runs show ..",
        "runs wait r --timeout soon",
        "runs cancel",
        "runs cancel r --task t",
        "runs resume r",
        "runs resume r --approve --reject",
        "events --run r --task t",
        "events --after yesterday",
        "agents add a",
        "agents add a --kind chat --endpoint http://x",
        "agents add a --kind command --endpoint x",
        "agents add a --kind http --endpoint http://x --header Authorization",
        "store prune --keep -1",
        "completions",
        "tree --nothing",
    ]));
    for group in ["tasks", "runs", "store"] {
        let said = place.run(&[group]);
        assert!(said.code() == 2 && said.err.contains("Commands:"), "{}", said.err);
    }
}

#[test]
fn what_is_asked_for_must_be_there() {
    let place = Place::new();
    insta::assert_snapshot!(place.told_all(&[
        "tasks list",
        "runs show r",
        "status --store memory:",
        "tasks list --url 127.0.0.1:8000",
        "tasks list --url http://me:secret@127.0.0.1:8000",
        "tasks list --config nowhere.toml",
        "store check",
        "store prune",
    ]));
    assert!(!place.path().join(".tenure").exists(), "looking made something");
}

#[test]
fn times_and_files_are_read_before_anything_is_stored() {
    let place = Place::new();
    place.write("broken.json", "{");
    place.write("broken.toml", "a = ");
    place.write("two.toml", "[tasks.a]\nquery = \"x\"\n[tasks.b]\nquery = \"y\"\n");
    insta::assert_snapshot!(place.told_all(&[
        "tasks add t --agent a --query q --at 'tomorow 09:00'",
        "tasks add t --agent a --query q --at 'tomorrow 25:00'",
        "tasks add t --agent a --query q --every 5m --timezone Mars/Base",
        "tasks add t --agent a --query q --metadata nonsense",
        "tasks add t --agent a --query q --metadata []",
        "tasks add t --agent a --query ' '",
        "tasks add t --query q",
        "tasks add t --agent a --query q --cron '61 * * * *'",
        "tasks add --file nowhere.json",
        "tasks add --file broken.json",
        "tasks add --file broken.toml",
        "tasks add --file two.toml",
        "tasks add c --file two.toml",
        "runs list --after 'sometime'",
        "runs list --before 'in a while'",
        "tasks list",
    ]));
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let place = Place::new();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let told = place.told(&format!("status --url http://127.0.0.1:{port}"));
    insta::assert_snapshot!(told.replace(&port.to_string(), "PORT"));
}

#[test]
fn the_server_of_a_store_that_is_not_there_is_told_in_a_line() {
    let place = Place::new();
    let schemes = [
        #[cfg(feature = "postgres")]
        "postgres",
        #[cfg(feature = "redis")]
        "redis",
        #[cfg(feature = "mongodb")]
        "mongodb",
    ];
    for scheme in schemes {
        // Who waits less finds out sooner.
        let mut command =
            place.command(&["tasks", "list", "--store", &format!("{scheme}://u:hunter2@127.0.0.1:1/0")]);
        let said = crate::program::said(command.env("TENURE_BUSY_TIMEOUT", "300ms"));
        assert_eq!((said.code(), &*said.out), (7, ""), "{}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        let begins = format!("error: the store refused: unavailable: \"{scheme}");
        assert!(said.err.starts_with(&begins) && said.err.contains("127.0.0.1:1"), "{}", said.err);
        assert!(
            said.err.to_lowercase().contains("refused") && said.err.contains("try again"),
            "{}",
            said.err
        );
        assert!(!said.err.contains("hunter2"), "{}", said.err);
    }
}

#[test]
fn what_is_no_server_of_ours_is_told() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = [
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>",
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        "nonsense\r\n\r\n",
        "",
    ];
    let serving = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _read = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let place = Place::new();
    let told: Vec<String> =
        answers.iter().map(|_| place.told(&format!("status --url {url}")).replace(&url, "URL")).collect();
    serving.join().unwrap();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_empty_page_is_no_end_of_a_list() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // A server looks at so many runs for one page, and may find none that matches.
    let pages = [
        r#"{"runs":[],"total":0,"total_estimated":true,"next_cursor":"r9"}"#,
        r#"{"runs":[{"run_id":"found"}],"total":1,"next_cursor":"r5"}"#,
        // One that gives the cursor that it was given does not go on.
        r#"{"runs":[],"total":1,"next_cursor":"r5"}"#,
    ];
    let serving = std::thread::spawn(move || {
        pages.map(|page| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            let length = page.len();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(format!("{head}{page}").as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..read]).lines().next().unwrap().to_owned()
        })
    });
    let listed = Place::new().run(&["runs", "list", "--text", "needle", "-q", "--url", &url]).well();
    assert_eq!(listed.out, "found\n");
    let asked = serving.join().unwrap();
    assert!(
        !asked[0].contains("cursor") && asked[1].contains("cursor=r9") && asked[2].contains("cursor=r5"),
        "{asked:?}"
    );
}

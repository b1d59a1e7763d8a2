//! The files of runs.

use reqwest::Method;
use serde_json::json;
use tenure::RunContext;

use crate::support::Served;

impl Served {
    /// A run whose agent wrote these files; answers where they are.
    async fn wrote(&self, files: Vec<(&'static str, Vec<u8>)>) -> String {
        let agent = move |context: RunContext| {
            let files = files.clone();
            async move {
                let workspace = context.workspace().unwrap();
                tokio::task::spawn_blocking(move || {
                    files.iter().for_each(|(path, bytes)| workspace.write(path, bytes).unwrap());
                })
                .await?;
                Ok("written".into())
            }
        };
        self.tenure.register_agent("writer", agent).unwrap();
        self.task("writer", json!({})).await;
        let run = self.post("/background/tasks/writer/run", json!({ "wait": true })).await;
        assert_eq!(run.expect(200)["status"], "completed", "{}", run.text);
        format!("/background/runs/{}/workspace", run.json["run_id"].as_str().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_and_read_with_their_media_type_and_run_in_no_browser() {
    let served = Served::new().await;
    let files = [
        ("artifacts/page.html", "text/html; charset=utf-8"),
        ("artifacts/image.svg", "image/svg+xml"),
        ("artifacts/a b.csv", "text/csv; charset=utf-8"),
        ("artifacts/app.js", "text/javascript; charset=utf-8"),
        ("artifacts/data.json", "application/json"),
        ("artifacts/unknown", "application/octet-stream"),
        ("logs/run.log", "text/plain; charset=utf-8"),
    ];
    let place = served.wrote(files.iter().map(|(path, _)| (*path, path.as_bytes().to_vec())).collect()).await;
    let listed = served.get(&place).await;
    let listed = listed.expect(200)["files"].as_array().unwrap();
    for (path, media_type) in files {
        let entry = listed.iter().find(|entry| entry["path"] == path).unwrap();
        assert_eq!((&entry["is_dir"], &entry["size"]), (&json!(false), &json!(path.len())));
        let told = served.get(&format!("{place}/{}", path.replace(' ', "%20"))).await;
        told.expect(200);
        assert_eq!(told.text, path);
        assert_eq!(told.header("content-type"), media_type);
        assert_eq!(told.header("x-content-type-options"), "nosniff");
        assert_eq!(told.header("content-security-policy"), "sandbox; default-src 'none'");
        let active = ["html", "svg", "js", "unknown"].iter().any(|ending| path.ends_with(ending));
        assert_eq!(told.header("content-disposition").starts_with("attachment; "), active, "{path}");
    }
    let output = served.get(&format!("{place}/output.md")).await;
    output.expect(200);
    assert_eq!(
        (&output.text[..], output.header("content-type")),
        ("written", "text/markdown; charset=utf-8")
    );
    let run = served.get(&format!("{place}/run.json")).await;
    assert_eq!(run.expect(200)["status"], "completed");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_are_sent_as_they_are_taken_and_in_parts() {
    let served = Served::new().await;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| b'a' + u8::try_from(n % 23).unwrap()).collect();
    let place = served.wrote(vec![("big.txt", bytes.clone()), ("empty.txt", Vec::new())]).await;
    let all = served.get(&format!("{place}/big.txt")).await;
    all.expect(200);
    assert!(all.text.as_bytes() == bytes, "byte for byte");
    assert_eq!(all.header("content-length"), "3000000");
    let part = async |range: &str| {
        let path = format!("{place}/big.txt");
        served.ask(&path, served.request(Method::GET, &path).header("range", range)).await
    };
    let told = part("bytes=100000-199999").await;
    told.expect(206);
    assert!(told.text.as_bytes() == &bytes[100_000..200_000]);
    assert_eq!(told.header("content-range"), "bytes 100000-199999/3000000");
    let told = part("bytes=-5").await;
    assert_eq!((told.status.as_u16(), told.text.as_bytes()), (206, &bytes[2_999_995..]));
    part("bytes=3000000-").await.problem(416, "range");
    assert_eq!(part("bytes=0-1,5-6").await.status, 200, "several parts at once are sent as a whole");
    let empty = served.get(&format!("{place}/empty.txt")).await;
    assert_eq!((empty.status.as_u16(), empty.text.len()), (200, 0));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_out_of_the_folder_of_a_run() {
    let served = Served::new().await;
    std::fs::write(served.folder.path().join("secret"), "secret").unwrap();
    let place = served.wrote(vec![("a.txt", b"a".to_vec())]).await;
    let head = format!("connection: close\r\nhost: {}\r\n\r\n", served.address);
    for path in [
        "../run.json",
        "..%2frun.json",
        "..%2f..%2f..%2f..%2f..%2fsecret",
        "artifacts/..%2f..%2fsecret",
        "%2e%2e/secret",
        "%2e%2e%2fsecret",
        "..%5csecret",
        "%2fetc%2fpasswd",
        "a.txt%00",
        ".",
        "%2e",
        "a//b",
        "artifacts/",
        "artifacts",
    ] {
        let answer = served.bytes(format!("GET {place}/{path} HTTP/1.1\r\n{head}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 422 "), "{path}: {answer}");
        assert!(answer.contains("\"field\":\"path\""), "{path}: {answer}");
        assert!(!answer.contains("secret\n"), "{path}: {answer}");
    }
    for path in ["nothing.txt", "a.txt/b", "%ff"] {
        let answer = served.bytes(format!("GET {place}/{path} HTTP/1.1\r\n{head}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_another_instance_are_told_to_be_there() {
    let store =
        std::sync::Arc::new(tenure::store::MemoryStore::new(std::sync::Arc::new(tenure::clock::SystemClock)));
    let first = Served::on(store.clone(), tenure::http::HttpOptions::default()).await;
    let place = first.wrote(vec![("a.txt", b"a".to_vec())]).await;
    let second = Served::on(store, tenure::http::HttpOptions::default()).await;
    for path in [place.clone(), format!("{place}/a.txt")] {
        let told = second.get(&path).await;
        let instance = first.tenure.instance_id().to_string();
        assert_eq!(told.problem(409, "elsewhere")["held_by"].as_str().unwrap().replace('-', ""), instance);
    }
    first.get(&place).await.expect(200);
    first.end().await;
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_replaced_by_a_link_is_told_and_not_looked_into() {
    let served = Served::new().await;
    let place = served.wrote(vec![("a.txt", b"a".to_vec())]).await;
    let path = served.get(&place).await.expect(200)["workspace_path"].as_str().unwrap().to_owned();
    let folder = served.folder.path().join("workspace").join(&path);
    let elsewhere = served.folder.path().join("elsewhere");
    std::fs::rename(&folder, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
    for path in [place.clone(), format!("{place}/a.txt")] {
        let told = served.get(&path).await;
        let problem = told.problem(409, "unfit_folder");
        assert!(problem["hint"].as_str().unwrap().contains("put the folder back"), "{}", told.text);
    }
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&elsewhere, &folder).unwrap();
    assert_eq!(served.get(&format!("{place}/a.txt")).await.text, "a");
    served.end().await;
}

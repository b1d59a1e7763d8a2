//! Commands of documents, as a shell runs them against the program.

use std::fmt::Write as _;
use std::process::Command;

use crate::kit::{Place, Server};

pub(crate) fn is_there() -> bool {
    crate::outside::has("curl", "the commands of the documents are not run")
}

/// As documents have it, but that what goes wrong is told, no proxy is asked, and all ends. The status follows the
/// answer.
const CURL: &str = "curl() {
  command curl --silent --show-error --noproxy '*' --max-time 60 --write-out '\\n%{http_code}\\n' \"$@\"
}\n";

/// What a script tells whose steps are set apart by empty lines, each with what comes of it. It is run as it stands,
/// but for the address.
pub(crate) fn transcript(place: &Place, server: &Server, script: &str, address: &str) -> String {
    let mut shell = CURL.to_owned();
    for step in script.trim().split("\n\n") {
        write!(shell, "cat <<'STEP'\n\n$ {step}\nSTEP\n{step}\n").unwrap();
    }
    let shell = shell.replace(address, &server.address);
    let output = Command::new("sh").args(["-euc", &shell]).current_dir(place.path(".")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said.replace(&server.address, address)
}

/// The fields of an answer one under the other, and so the records in it, in the order in which they came.
pub(crate) fn one_under_the_other(answer: &str) -> String {
    let (mut shown, mut depth, mut quoted, mut escaped, mut last) = (String::new(), 0, false, false, ' ');
    for c in answer.chars() {
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        match c {
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        shown.push(c);
        if c == ',' && !quoted && (depth == 1 || last == '}') {
            shown.push('\n');
            shown.push_str(&" ".repeat(depth));
        }
        last = c;
    }
    shown
}

/// What stands before a number that is another each time, or a text that is another in each release.
const DIFFERS: [&str; 7] = [
    "\"version\":\"",
    "\"cursor\":",
    "\"duration_seconds\":",
    "\"late_by_seconds\":",
    "\"executing\":",
    "\"name\":\"run.json\",\"size\":",
    "\"name\":\"events.jsonl\",\"size\":",
];

/// The text without ids, instants of now, and numbers that differ from time to time.
pub(crate) fn steady(text: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let word = run(|c| c.is_ascii_alphanumeric());
        let instant = run(|c| c.is_ascii_digit() || "-:.TZ".contains(c));
        let (length, as_shown) = if word == 32 && rest[..word].bytes().all(|c| c.is_ascii_hexdigit()) {
            (word, "[id]")
        } else if instant == 24 && rest.starts_with("20") {
            (instant, "[instant]")
        } else {
            let length = word.max(first.len_utf8());
            (length, &rest[..length])
        };
        shown.push_str(as_shown);
        rest = &rest[length..];
        if let Some(before) = DIFFERS.iter().find(|before| shown.ends_with(**before)) {
            let is_text = before.ends_with('"');
            shown.push_str(if is_text { "[text]" } else { "[n]" });
            rest = rest.trim_start_matches(|c: char| match is_text {
                true => c != '"',
                false => c.is_ascii_digit() || c == '.',
            });
        }
    }
    shown
}

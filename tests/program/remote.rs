//! What the tests of agents at endpoints share: an endpoint that never answers, and how attempts ended.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::kit::*;

/// An endpoint that takes what is asked, and answers nothing.
pub(crate) struct Silent {
    calls: Receiver<TcpStream>,
    pub(crate) url: String,
}

impl Silent {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, calls) = channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if tell.send(stream).is_err() {
                    return;
                }
            }
        });
        Self { calls, url }
    }

    /// Somebody asks.
    pub(crate) fn asked(&self) -> Call {
        let stream = self.calls.recv_timeout(MOST).expect("somebody asks in time");
        stream.set_read_timeout(Some(MOST)).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).unwrap() > 0 && line != "\r\n" {
            line.clear();
        }
        Call { stream }
    }
}

/// One who waits for an answer.
pub(crate) struct Call {
    stream: BufReader<TcpStream>,
}

impl Call {
    /// Waits until nobody listens any more.
    pub(crate) fn hung_up(mut self) {
        match self.stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

/// How the attempts of a run ended, each with the class of its error.
pub(crate) fn attempts_of(server: &Server, run_id: &str) -> Vec<(String, String)> {
    let attempts = server.get(&format!("/background/runs/{run_id}/attempts")).body;
    let word = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let attempts = attempts.as_array().unwrap().iter();
    attempts.map(|attempt| (word(&attempt["status"]), word(&attempt["error"]["class"]))).collect()
}

/// The milliseconds between two events of a run.
pub(crate) fn between(events: &Value, first: &str, then: &str) -> i64 {
    let at = |name: &str, after: usize| {
        let events = events.as_array().unwrap().iter().enumerate().skip(after);
        let mut found = events.filter(|(_, event)| event["event"] == format!("background_run_{name}"));
        let (place, event) = found.next().unwrap_or_else(|| panic!("no event {name:?}"));
        (place, event["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap())
    };
    let (place, begins) = at(first, 0);
    at(then, place).1.duration_since(begins).as_millis().try_into().unwrap()
}

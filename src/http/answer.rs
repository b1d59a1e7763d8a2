//! How handlers answer.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::problem::{Answer, Kind, Problem};

/// JSON, written as text once: metadata keeps its digits.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Answer {
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Problem::new(Kind::Internal, format!("the answer cannot be written: {error}")))?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The same, of what is there.
pub(super) fn ok<T: Serialize>(value: &T) -> Answer {
    json(StatusCode::OK, value)
}

/// The same, of something that is found at a place from now on.
pub(super) fn at<T: Serialize>(status: StatusCode, place: &str, value: &T) -> Answer {
    let mut response = json(status, value)?;
    if let Ok(place) = HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// What is left out of a listing because it cannot be read.
#[derive(Serialize)]
pub(super) struct Unreadable {
    /// Its name.
    id: String,
    /// Why not.
    reason: String,
}

/// The records of a page that cannot be read, for who looks after the store.
pub(super) fn unreadable(corrupt: Vec<(String, String)>) -> Vec<Unreadable> {
    corrupt.into_iter().map(|(id, reason)| Unreadable { id, reason }).collect()
}

//! The files of runs. What an agent wrote is nobody's page: no browser runs it here.

use std::fs::File as OsFile;
use std::io::{self, Read, Seek, SeekFrom};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

use super::names::{File, Named};
use super::problem::{Answer, Kind, Problem};
use super::{Api, answer, query, schemas};
use crate::model::RunId;
use crate::tasks::blocking;

/// How much is read at once.
const CHUNK: u64 = 64 << 10;

/// What a browser may show by itself: it holds no program.
const PASSIVE: [&str; 6] =
    ["text/plain", "text/markdown", "text/csv", "application/json", "application/x-ndjson", "image/png"];

/// What lies in the workspace of a run
#[utoipa::path(get, path = "/background/runs/{run_id}/workspace", tag = "workspace",
    operation_id = "list_workspace",
    params(("run_id" = String, Path, description = "the run")),
    responses(
        (status = 200, body = schemas::Workspace),
        (status = 409, description = "the files are at another instance, which is named", body = schemas::Problem),
    ))]
pub(super) async fn list(State(api): State<Api>, parts: Parts, Named(run_id): Named<RunId>) -> Answer {
    query::nothing(&parts)?;
    answer::ok(&api.tenure().workspace(&run_id).await?)
}

/// A file of a run
///
/// Its media type is that of its name. What could act in a browser is sent to be saved.
#[utoipa::path(get, path = "/background/runs/{run_id}/workspace/{*path}", tag = "workspace",
    operation_id = "read_file",
    params(
        ("run_id" = String, Path, description = "the run"),
        ("path" = String, Path, description = "the file, below the folder of the run"),
        ("Range" = Option<String>, Header, description = "one range of bytes"),
    ),
    responses(
        (status = 200, content_type = "application/octet-stream", body = String),
        (status = 206, description = "the bytes that were asked for", content_type = "application/octet-stream",
         body = String),
        (status = 409, description = "the files are at another instance, which is named", body = schemas::Problem),
        (status = 416, description = "the file has no such bytes", body = schemas::Problem),
    ))]
pub(super) async fn read(State(api): State<Api>, parts: Parts, File(run_id, path): File) -> Answer {
    query::nothing(&parts)?;
    let opened = api.tenure().open_file(&run_id, &path).await?;
    let range = match range(&parts.headers, opened.size) {
        Some(Ok(range)) => Some(range),
        Some(Err(())) => return unfit(&path, opened.size),
        None => None,
    };
    let (from, length) = range.unwrap_or((0, opened.size));
    let mut response = Response::new(content(opened.file, from, length));
    let headers = response.headers_mut();
    describe(headers, &opened.media_type, &path);
    headers.insert(header::CONTENT_LENGTH, length.into());
    if range.is_some() {
        let last = (from + length).saturating_sub(1);
        let value = HeaderValue::from_str(&format!("bytes {from}-{last}/{}", opened.size));
        headers.extend(value.ok().map(|value| (header::CONTENT_RANGE, value)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn unfit(path: &str, size: u64) -> Answer {
    let shown = query::shown(path);
    Err(Problem::new(Kind::Range, format!("{shown} has {size} bytes, and none of those that were asked for")))
}

fn describe(headers: &mut HeaderMap, media_type: &str, path: &str) {
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap_or(unknown));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    let bare = media_type.split(';').next().unwrap_or_default();
    if !PASSIVE.contains(&bare) {
        let saved = HeaderValue::from_str(&disposition(path));
        headers.extend(saved.ok().map(|saved| (header::CONTENT_DISPOSITION, saved)));
    }
}

/// Under what name it is saved (RFC 6266): the last of its path, byte by byte where it is not plain.
fn disposition(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let encoded: String = name
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename*=UTF-8''{encoded}")
}

/// The one range of bytes that is asked for: where it begins and how long it is. None where all is to be sent, as
/// for several ranges, or what is no range of bytes (RFC 9110, section 14.2).
fn range(headers: &HeaderMap, size: u64) -> Option<Result<(u64, u64), ()>> {
    let asked = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = asked.split_once('-')?;
    let parse = |text: &str| text.trim().parse::<u64>().ok();
    let (first, last) = match (first.trim(), last.trim()) {
        ("", last) => {
            let length = parse(last)?;
            (size.saturating_sub(length), if length == 0 { None } else { size.checked_sub(1) })
        }
        (first, "") => (parse(first)?, size.checked_sub(1)),
        (first, last) => (parse(first)?, Some(parse(last)?.min(size.saturating_sub(1)))),
    };
    Some(match last {
        Some(last) if first <= last && first < size => Ok((first, last - first + 1)),
        _ => Err(()),
    })
}

/// The bytes of a file, read as the caller takes them. If the file has become shorter the answer breaks off.
fn content(file: OsFile, from: u64, length: u64) -> Body {
    let chunks = futures_util::stream::try_unfold((file, from, length), |(mut file, at, left)| async move {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let (read, file) = blocking(move || {
            let read = chunk(&mut file, at, left.min(CHUNK));
            (read, file)
        })
        .await?;
        let bytes = read?;
        let got = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(Some((bytes, (file, at + got, left.saturating_sub(got)))))
    });
    Body::from_stream(chunks)
}

fn chunk(file: &mut OsFile, at: u64, most: u64) -> io::Result<Bytes> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood() {
        let of = |asked: &str, size: u64| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, asked.parse().unwrap());
            range(&headers, size)
        };
        assert_eq!(of("bytes=0-3", 10), Some(Ok((0, 4))));
        assert_eq!(of("bytes=4-", 10), Some(Ok((4, 6))));
        assert_eq!(of("bytes=-3", 10), Some(Ok((7, 3))));
        assert_eq!(of("bytes=-30", 10), Some(Ok((0, 10))));
        assert_eq!(of("bytes=8-99", 10), Some(Ok((8, 2))));
        for unfit in ["bytes=10-", "bytes=5-4", "bytes=-0"] {
            assert_eq!(of(unfit, 10), Some(Err(())), "{unfit}");
        }
        assert_eq!(of("bytes=0-", 0), Some(Err(())));
        for other in ["bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "bytes=-", "bytes=99999999999999999999-"] {
            assert_eq!(of(other, 10), None, "{other}");
        }
    }

    #[test]
    fn the_name_under_which_a_file_is_saved_cannot_be_more_than_a_name() {
        let name = disposition("artifacts/a \"b\"; x=\r\nc/../\u{fc}.html");
        assert_eq!(name, "attachment; filename*=UTF-8''%C3%BC.html");
    }
}

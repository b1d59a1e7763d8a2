//! The router of this process: nothing goes over a wire.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Url;
use tower::ServiceExt;

use super::{Ask, Response};
use crate::exit::{Exit, Failure};

pub(super) struct Here {
    router: Router,
}

impl Here {
    pub(super) fn new(router: Router) -> Self {
        Self { router }
    }

    pub(super) async fn begin(&self, ask: Ask) -> Result<Response, Failure> {
        let response = match self.router.clone().oneshot(request(ask)?).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        let retry_after = parts.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let bytes = body.into_data_stream().map_err(|error| Failure::new(Exit::Failed, error.to_string()));
        Ok(Response {
            status: parts.status.as_u16(),
            retry_after: retry_after.map(str::to_owned),
            bytes: bytes.boxed(),
        })
    }
}

fn request(ask: Ask) -> Result<Request<Body>, Failure> {
    let nowhere = Url::parse("http://localhost/").map_err(|error| Failure::usage(error.to_string()))?;
    let url = ask.url(&nowhere)?;
    let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let mut request = Request::builder().method(ask.method).uri(target).header(header::HOST, "localhost");
    for (name, value) in ask.headers {
        request = request.header(name, value);
    }
    let body = ask.body.map_or_else(Body::empty, Body::from);
    request.body(body).map_err(|error| Failure::usage(format!("this cannot be asked: {error}")))
}

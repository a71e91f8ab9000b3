//! What the endpoint serves beside JSON-RPC: `/health` and `/metrics`. It also marks HTTP answers that
//! were passed on without a proof.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use jsonrpsee::server::{HttpBody, HttpRequest, HttpResponse};
use serde_json::json;
use tower::{Layer, Service};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::Proven;
use super::builder::RpcServerError;
use super::index::FilterIndex;

/// Name of the HTTP header of an answer that nobody proved.
pub(super) const UNVERIFIED: &str = "chainsieve-unverified";

/// Set for a request over HTTP, not for a WebSocket, whose answer is passed on without a proof.
#[derive(Debug, Clone, Default)]
pub(super) struct Passed(pub(super) Arc<AtomicBool>);

/// Origins of pages that may use the endpoint from a browser.
#[derive(Debug, Clone, Default)]
pub(super) struct Origins(Arc<[HeaderValue]>);

impl Origins {
    pub(super) fn new(origins: Vec<String>) -> Result<Self, RpcServerError> {
        let value = |origin: String| {
            let is_origin = origin == "*" || origin.contains("://") && !origin.ends_with('/');
            let value = HeaderValue::try_from(&origin).ok().filter(|_| is_origin);
            value.ok_or_else(|| {
                RpcServerError::Open(format!("{origin}: not an origin: scheme://host"))
            })
        };
        origins.into_iter().map(value).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the layer that allows these origins; `None` if there are none.
    pub(super) fn cors(&self) -> Option<CorsLayer> {
        let origins = if self.allows_all() {
            AllowOrigin::any()
        } else if self.0.is_empty() {
            return None;
        } else {
            AllowOrigin::list(self.0.iter().cloned())
        };
        let cors =
            CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]);
        let marks = [HeaderName::from_static(UNVERIFIED)];
        Some(cors.allow_headers([CONTENT_TYPE]).expose_headers(marks))
    }

    fn allows_all(&self) -> bool {
        self.0.iter().any(|origin| origin == "*")
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.allows_all() || self.0.contains(origin) || is_of_this_machine(origin.as_bytes())
    }
}

#[derive(Debug, Clone)]
pub(super) struct OperationsLayer {
    pub(super) proven: Arc<Proven>,
    /// Pages that may open a WebSocket, beside those of this machine.
    pub(super) origins: Origins,
}

impl<S> Layer<S> for OperationsLayer {
    type Service = Operations<S>;

    fn layer(&self, inner: S) -> Operations<S> {
        Operations { inner, layer: self.clone() }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Operations<S> {
    inner: S,
    layer: OperationsLayer,
}

impl<S, B> Service<HttpRequest<B>> for Operations<S>
where
    S: Service<HttpRequest<B>, Response = HttpResponse>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = HttpResponse;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: HttpRequest<B>) -> Self::Future {
        let is_get = request.method().as_str() == "GET";
        let own = match request.uri().path() {
            "/health" if is_get => Some(health(&self.layer.proven)),
            "/metrics" if is_get => Some(metrics(&self.layer.proven)),
            _ => None,
        };
        if let Some(own) = own {
            return Box::pin(std::future::ready(Ok(own)));
        }
        let passed = Passed::default();
        if request.headers().contains_key("upgrade") {
            // A browser lets any page open a WebSocket, and says which page it is.
            let origin = request.headers().get("origin");
            let is_foreign = origin.is_some_and(|origin| !self.layer.origins.allows(origin));
            if is_foreign {
                let body = "pages of other hosts cannot use this endpoint".to_owned();
                return Box::pin(std::future::ready(Ok(response(403, "text/plain", body))));
            }
        } else {
            request.extensions_mut().insert(passed.clone());
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            if passed.0.load(Ordering::Relaxed) {
                let value = "1".parse().expect("a digit");
                answer.headers_mut().insert(UNVERIFIED, value);
            }
            Ok(answer)
        })
    }
}

/// Returns `true` if the origin of a page is a server on this machine.
fn is_of_this_machine(origin: &[u8]) -> bool {
    let host = str::from_utf8(origin).ok().and_then(|text| text.split_once("://")).map(|it| it.1);
    host.is_some_and(|host| {
        let name = if host.starts_with('[') {
            host.split_inclusive(']').next()
        } else {
            host.split(':').next()
        };
        name.is_some_and(|name| ["localhost", "127.0.0.1", "[::1]"].contains(&name))
    })
}

fn response(status: u16, kind: &str, body: String) -> HttpResponse {
    let built = HttpResponse::builder().status(status).header("content-type", kind);
    built.body(HttpBody::from(body)).expect("a status and a header")
}

fn health(proven: &Proven) -> HttpResponse {
    let head = proven.chain.head();
    let body = json!({
        "ready": head.is_some(),
        "head": head,
        "finalized": proven.chain.finalized(),
        "index": proven.index.as_ref().and_then(FilterIndex::numbers),
        "trust": proven.trust(),
    });
    let status = if head.is_some() { 200 } else { 503 };
    response(status, "application/json", body.to_string())
}

fn metrics(proven: &Proven) -> HttpResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response(200, kind, proven.metrics.text())
}

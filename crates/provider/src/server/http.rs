//! HTTP of the endpoint: JSON-RPC, the opening of `WebSocket` connections, `/health` and
//! `/metrics`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, HOST, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{Request, Response};
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::clients::{Client, Held, Open};
use super::error::RpcServerError;
use super::index::FilterIndex;
use super::rpc::Caller;
use super::websocket::Input;
use super::{Proven, websocket};
use crate::nodes::transport::unix_time;
use crate::stop::lock;

/// Name of the HTTP header of an answer that is not proven.
pub(super) const UNVERIFIED: &str = "chainsieve-unverified";
/// Media types of JSON-RPC over HTTP. A page in a browser cannot send these types to another host
/// without that host's permission (CORS).
const JSON: [&str; 3] = ["application/json", "application/json-rpc", "application/jsonrequest"];

/// The bytes of an answer, in pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Hosts that requests may address, each with its port. A port of `None` stands for any port.
#[derive(Debug, Clone)]
pub(super) struct Hosts(Vec<(String, Option<u16>)>);

impl Hosts {
    pub(super) fn new(hosts: &[String]) -> Result<Self, RpcServerError> {
        let host = |text: &String| {
            let (name, port) = match text.strip_suffix(":*") {
                Some(name) => (name, None),
                None => match port_of(text) {
                    Some((name, port)) => (name, Some(port)),
                    None => (text.as_str(), Some(80)),
                },
            };
            let is_name =
                !name.is_empty() && name.parse::<Authority>().is_ok_and(|it| it.host() == name);
            let words =
                || RpcServerError::Open(format!("allowed hosts: {text}: not host:port or host:*"));
            is_name.then(|| (name.to_ascii_lowercase(), port)).ok_or_else(words)
        };
        hosts.iter().map(host).collect::<Result<_, _>>().map(Self)
    }

    fn allow(&self, headers: &HeaderMap, uri: &http::Uri) -> bool {
        let named = headers.get(HOST).and_then(|host| host.to_str().ok());
        let Some(host) = named.and_then(|host| host.parse::<Authority>().ok()) else {
            return false;
        };
        // A request by a whole URL is for the host in it.
        let host = uri.authority().cloned().unwrap_or(host);
        let (name, port) = (host.host().to_ascii_lowercase(), host.port_u16().unwrap_or(80));
        self.0.iter().any(|(own, of)| *own == name && of.is_none_or(|of| of == port))
    }
}

/// Splits a host from its port.
fn port_of(text: &str) -> Option<(&str, u16)> {
    let (name, port) = text.rsplit_once(':')?;
    Some((name, port.parse().ok()?))
}

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

/// The state that serves all connections.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) proven: Arc<Proven>,
    /// `None` if requests for any host are accepted.
    pub(super) hosts: Option<Hosts>,
    /// Origins of pages that may use the endpoint, in addition to pages of this machine.
    pub(super) origins: Origins,
}

/// The service for the requests of one connection.
type OfConnection = BoxCloneService<Request<Incoming>, Response<Pieces>, Infallible>;

/// A connection with its client.
#[derive(Debug, Clone)]
struct Peer {
    address: IpAddr,
    client: Arc<Client>,
    input: Arc<Input>,
    /// Counts the connection until the last clone is dropped: a WebSocket outlives the HTTP service
    /// of its connection.
    open: Arc<Open>,
}

impl Front {
    pub(super) fn of_connection(
        self: &Arc<Self>,
        address: IpAddr,
        client: Arc<Client>,
        input: Arc<Input>,
        open: Arc<Open>,
    ) -> OfConnection {
        let (front, peer) = (Arc::clone(self), Peer { address, client, input, open });
        let answer = move |request| {
            let (front, peer) = (Arc::clone(&front), peer.clone());
            async move { Ok::<_, Infallible>(front.answer(request, peer).await) }
        };
        let cors = self.origins.cors();
        ServiceBuilder::new().option_layer(cors).service(service_fn(answer)).boxed_clone()
    }

    async fn answer(&self, request: Request<Incoming>, mut peer: Peer) -> Response<Pieces> {
        if self.hosts.as_ref().is_some_and(|hosts| !hosts.allow(request.headers(), request.uri())) {
            return text(StatusCode::FORBIDDEN, "requests for this host are not allowed");
        }
        let (proven, headers) = (&self.proven, request.headers());
        if proven.limits.behind_proxy {
            let named = headers.get_all("x-forwarded-for").iter().next_back();
            let address = named.and_then(|value| forwarded_for(value.to_str().ok()?));
            peer.address = address.unwrap_or(peer.address);
            peer.client = proven.clients.of(peer.address);
        }
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/health") => health(proven),
            (&Method::GET | &Method::HEAD, "/metrics") => metrics(proven),
            // Of other protocols, a server need not know.
            (&Method::GET, _) if has(headers, UPGRADE, "websocket") => {
                self.websocket(request, peer)
            }
            (&Method::POST, _) => self.json_rpc(request, peer).await,
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "JSON-RPC takes POST, or a WebSocket"),
        }
    }

    async fn json_rpc(&self, request: Request<Incoming>, peer: Peer) -> Response<Pieces> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| JSON.iter().any(|json| kind.eq_ignore_ascii_case(json))) {
            return text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type: application/json is needed",
            );
        }
        let limits = &self.proven.limits;
        let body = self.body(request.into_body(), &peer.client);
        let (body, held) = match tokio::time::timeout(limits.request_timeout, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(refused)) => return refused,
            Err(_) => {
                self.proven.metrics.limit_reached("request_timeout");
                return text(StatusCode::REQUEST_TIMEOUT, "the request took too long");
            }
        };
        let caller =
            Caller { proven: Arc::clone(&self.proven), client: peer.client, subscriptions: None };
        let reply = caller.answer(&body).await;
        drop((body, held));
        let Some(reply) = reply else { return response(StatusCode::OK, "application/json", []) };
        let mut answer = response(StatusCode::OK, "application/json", reply.parts);
        if reply.is_unverified {
            answer.headers_mut().insert(UNVERIFIED, HeaderValue::from_static("1"));
        }
        answer
    }

    /// Reads the body of a request.
    async fn body(
        &self,
        mut body: Incoming,
        client: &Arc<Client>,
    ) -> Result<(Vec<u8>, Held), Response<Pieces>> {
        let limit = self.proven.limits.max_request as usize;
        let too_large = || {
            self.proven.metrics.limit_reached("request_bytes");
            let why = format!("the request has more than {limit} bytes");
            text(StatusCode::PAYLOAD_TOO_LARGE, why)
        };
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large());
        }
        let (mut bytes, mut held) = (Vec::new(), self.proven.passing.part(client));
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| text(StatusCode::BAD_REQUEST, "the request is cut off"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(too_large());
            }
            if let Err(refusal) = held.grow(data.len() as u64) {
                return Err(text(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, held))
    }

    /// Opens a WebSocket (RFC 6455, section 4.2).
    fn websocket(&self, mut request: Request<Incoming>, peer: Peer) -> Response<Pieces> {
        let headers = request.headers();
        // A browser lets any page open a WebSocket, and says which page it is.
        if headers.get(ORIGIN).is_some_and(|origin| !self.origins.allows(origin)) {
            return text(StatusCode::FORBIDDEN, "pages of other hosts cannot use this endpoint");
        }
        let is_valid =
            has(headers, CONNECTION, "upgrade") && has(headers, SEC_WEBSOCKET_VERSION, "13");
        let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_valid);
        let Some(key) = key.map(|key| derive_accept_key(key.as_bytes())) else {
            let needed = "a WebSocket begins with Connection: Upgrade, Sec-WebSocket-Version: 13 and \
                          Sec-WebSocket-Key";
            return text(StatusCode::BAD_REQUEST, needed);
        };
        let Peer { client, input, open, .. } = peer;
        let caller = Caller {
            proven: Arc::clone(&self.proven),
            client,
            subscriptions: Some(Arc::default()),
        };
        let upgraded = hyper::upgrade::on(&mut request);
        input.begin(self.proven.passing.part(&caller.client));
        tokio::spawn(async move {
            if let Ok(upgraded) = upgraded.await {
                websocket::serve(upgraded, caller, input).await;
            }
            drop(open);
        });
        let mut answer = Response::new(Pieces::default());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let accept = HeaderValue::try_from(key).expect("base64");
        for (name, value) in [
            (CONNECTION, HeaderValue::from_static("Upgrade")),
            (UPGRADE, HeaderValue::from_static("websocket")),
            (SEC_WEBSOCKET_ACCEPT, accept),
        ] {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

/// Returns `true` if a list in the headers contains a word.
fn has(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|own| own.trim().eq_ignore_ascii_case(word)))
}

/// Returns the client's address that a proxy names: the last address in the list, which the proxy
/// added itself.
fn forwarded_for(value: &str) -> Option<IpAddr> {
    let last = value.rsplit(',').next()?.trim();
    last.parse().ok().or_else(|| last.parse::<SocketAddr>().ok().map(|address| address.ip()))
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

fn response(
    status: StatusCode,
    kind: &'static str,
    pieces: impl IntoIterator<Item = Bytes>,
) -> Response<Pieces> {
    let mut response = Response::new(Pieces(pieces.into_iter().collect()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn text(status: StatusCode, why: impl Into<String>) -> Response<Pieces> {
    response(status, "text/plain; charset=utf-8", [Bytes::from(why.into())])
}

fn health(proven: &Proven) -> Response<Pieces> {
    // Both at once: the head may move between two questions.
    let (head, time) = proven.chain.head_and_time().unzip();
    let age = time.map(|time| unix_time().as_secs().saturating_sub(time));
    let limit = proven.max_head_age.map(|age| age.as_secs());
    let is_young = age.zip(limit).is_none_or(|(age, limit)| age <= limit);
    let is_ready = head.is_some() && is_young;
    let body = json!({
        "ready": is_ready,
        "head": head,
        "age": age,
        "max_age": limit,
        "head_failure": *lock(&proven.head_failure),
        "finalized": proven.chain.finalized(),
        "index": proven.index.as_ref().and_then(FilterIndex::numbers),
        "trust": proven.trust(),
    });
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response(status, "application/json", [Bytes::from(body.to_string())])
}

fn metrics(proven: &Proven) -> Response<Pieces> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    proven.measure();
    response(StatusCode::OK, kind, [Bytes::from(proven.metrics.text())])
}

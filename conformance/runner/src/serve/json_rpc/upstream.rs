//! The node behind a proxy, which gets each request as the client sent it.

use std::io::{self, Read as _};
use std::time::Duration;

use ureq::Agent;

/// Largest response that is read, in bytes: no block of 60 million gas has longer receipts.
const MAX_BODY: u64 = 64 << 20;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A node that answers over HTTP.
#[derive(Debug)]
pub(super) struct Upstream {
    agent: Agent,
    url: String,
}

impl Upstream {
    pub(super) fn new(url: String) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A proxy of the environment cannot reach this machine's loopback.
            .proxy(None)
            .timeout_global(Some(TIMEOUT))
            .build();
        Self { agent: config.into(), url }
    }

    /// Posts a request, and returns the body of the response, whatever its status is.
    pub(super) fn post(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let request = self.agent.post(&self.url).content_type("application/json");
        let mut response = request.send(body).map_err(ureq::Error::into_io)?;
        let mut answer = Vec::new();
        let read = response.body_mut().as_reader().take(MAX_BODY + 1).read_to_end(&mut answer)?;
        if read as u64 > MAX_BODY {
            return Err(io::Error::other(format!("more than {MAX_BODY} bytes")));
        }
        Ok(answer)
    }
}

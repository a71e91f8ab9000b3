//! The endpoints of a builder.

use crate::error::BuildError;
use crate::node::{Endpoint, EndpointError};

/// Endpoints in the order in which they were given. Mistakes are reported when all are there.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    list: Vec<Result<Endpoint, EndpointError>>,
    /// `true` if a header was given before any URL.
    has_stray_header: bool,
}

impl Endpoints {
    pub(crate) fn add(&mut self, endpoint: Result<Endpoint, EndpointError>) {
        self.list.push(endpoint);
    }

    /// Adds a header to the last endpoint.
    pub(crate) fn add_header(&mut self, header: &str) {
        match self.list.pop() {
            Some(endpoint) => {
                self.list.push(endpoint.and_then(|endpoint| endpoint.with_header(header)));
            }
            None => self.has_stray_header = true,
        }
    }

    pub(crate) fn build(self) -> Result<Vec<Endpoint>, BuildError> {
        if self.has_stray_header {
            return Err(BuildError::HeaderBeforeUrl);
        }
        let numbered = self.list.into_iter().zip(1..);
        let endpoints = numbered.map(|(endpoint, place)| {
            endpoint.map_err(|error| BuildError::Endpoint { place, error })
        });
        endpoints.collect()
    }
}

//! Runs the conformance vectors against any implementation.

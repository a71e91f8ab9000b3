//! The files of a data set.

use std::fmt;

use crate::stream::Stream;

type OpenFile = Box<dyn FnOnce() -> Result<Stream, String> + Send>;

/// A file of a table: a name, which findings contain, and a stream of its rows.
///
/// A [`Stream`] alone is a file without a name, and a pair of a name and a stream is one with a name.
pub struct File {
    name: String,
    open: OpenFile,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

impl File {
    /// A file that is opened when it is its turn, so that a table may have any number of files. If it can't be
    /// opened, the file is reported with the error, and the others are read.
    pub fn new<E: fmt::Display>(
        name: impl Into<String>,
        open: impl FnOnce() -> Result<Stream, E> + Send + 'static,
    ) -> Self {
        let open = move || open().map_err(|error| error.to_string());
        Self { name: name.into(), open: Box::new(open) }
    }

    /// Opens the file.
    pub(crate) fn open(self) -> (String, Result<Stream, String>) {
        (self.name, (self.open)())
    }
}

impl From<Stream> for File {
    fn from(stream: Stream) -> Self {
        Self { name: "stream".to_owned(), open: Box::new(move || Ok(stream)) }
    }
}

impl<N: Into<String>> From<(N, Stream)> for File {
    fn from((name, stream): (N, Stream)) -> Self {
        Self { name: name.into(), open: Box::new(move || Ok(stream)) }
    }
}

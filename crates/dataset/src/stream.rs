//! Arrow's C stream interface: the only place where memory of another library is taken and given.

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array as _, RecordBatchReader};

/// A table, or a part of one, in Arrow's C stream interface.
///
/// This is the struct [`ArrowArrayStream`](https://arrow.apache.org/docs/format/CStreamInterface.html) of C, which
/// DuckDB, Polars, pyarrow, DataFusion and arrow-rs hand over. The types of arrow-rs are not part of this
/// interface, so that its versions do not matter to callers.
///
/// The producer in the same process is trusted for the layout of the memory, as C's interface has it. Lengths,
/// offsets, types and values are checked.
pub struct Stream(FFI_ArrowArrayStream);

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    /// Takes a stream over from a struct `ArrowArrayStream`, and marks the struct as released.
    ///
    /// # Safety
    /// `stream` points to a valid struct `ArrowArrayStream`, which nobody else uses meanwhile. Its functions
    /// keep the contract of the C stream interface until the stream is released.
    ///
    /// # Examples
    /// The front page of the [crate] has a program.
    #[must_use]
    #[expect(unsafe_code, reason = "C hands over a pointer")]
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        // SAFETY: the caller keeps the contract of this function, which is that of `from_raw`.
        Self(unsafe { FFI_ArrowArrayStream::from_raw(stream.cast()) })
    }

    /// Gives the stream to C: writes the struct `ArrowArrayStream` to `out`, whose reader must release it.
    ///
    /// # Safety
    /// `out` is aligned and valid for writes of a struct `ArrowArrayStream`. What it has had is overwritten, and
    /// not released.
    #[expect(unsafe_code, reason = "C takes a pointer")]
    pub unsafe fn write_to(self, out: *mut c_void) {
        // SAFETY: the caller says that `out` is valid for this write.
        unsafe { out.cast::<FFI_ArrowArrayStream>().write(self.0) }
    }

    pub(crate) fn export(reader: Box<dyn RecordBatchReader + Send>) -> Self {
        Self(FFI_ArrowArrayStream::new(reader))
    }

    /// Asks the stream for its columns.
    pub(crate) fn open(self) -> Result<Reader, String> {
        let open = || RecordBatchStreamReader::try_new(self.0);
        let reader = catching(open)?.map_err(|error| error.to_string())?;
        Ok(Reader { reader })
    }
}

/// The batches of a stream.
pub(crate) struct Reader {
    reader: RecordBatchStreamReader,
}

impl Reader {
    pub(crate) fn names(&self) -> Vec<String> {
        self.reader.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns the next batch.
    pub(crate) fn next(&mut self) -> Option<Result<RecordBatch, String>> {
        match catching(|| self.reader.next()) {
            Ok(next) => next.map(|batch| batch.map_err(|error| error.to_string())),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Checks what a reader of the column relies on: offsets, lengths, keys and UTF-8.
pub(crate) fn check(column: &arrow_array::ArrayRef) -> Result<(), String> {
    catching(|| column.to_data().validate_full())?.map_err(|error| error.to_string())
}

/// arrow-rs asserts some rules of the interface. Here, a producer that breaks them has an unreadable stream.
fn catching<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("the stream breaks a rule of Arrow: {}", text.unwrap_or("unknown"))
    })
}

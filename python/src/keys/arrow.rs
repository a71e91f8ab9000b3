//! Keys in Arrow arrays, by the C data interface and its `PyCapsule` protocol. No Arrow library is
//! linked, so that a wheel fits every version of Arrow in the same process.
//!
//! Source: "The Arrow C data interface", "The Arrow C stream interface" and "The Arrow PyCapsule
//! interface" of the Arrow specification. The interface gives pointers without lengths: the sizes of
//! buffers follow from the type, the length and the offsets, and whoever exports an array vouches
//! for them. Everything else is checked: lengths, offsets, views and positions in dictionaries.

#![expect(unsafe_code, reason = "reads the memory of the C data interface")]

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use super::{Borrowed, Offsets, Part, Values};
use crate::errors::InvalidInput;

/// `ArrowSchema` of the C data interface.
#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *const *const Schema,
    dictionary: *const Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

/// `ArrowArray` of the C data interface.
#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *const *const Array,
    dictionary: *const Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

/// `ArrowArrayStream` of the C stream interface.
#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// The structures whose owner calls `release`.
trait Released: Sized {
    const NAME: &'static CStr;

    /// Takes the function that releases the structure, and so marks it as released.
    fn take_release(&mut self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

macro_rules! released {
    ($($type:ty: $name:literal;)+) => {$(
        impl Released for $type {
            const NAME: &'static CStr = $name;

            fn take_release(&mut self) -> Option<unsafe extern "C" fn(*mut Self)> {
                self.release.take()
            }
        }
    )+};
}

released! { Schema: c"arrow_schema"; Array: c"arrow_array"; Stream: c"arrow_array_stream"; }

/// A structure that is ours to release. Its address does not change.
struct Owned<T: Released>(Box<T>);

// SAFETY: the C data interface allows that another thread than the producer's reads and releases a
// structure. Its memory does not change, and only `drop` releases it.
unsafe impl<T: Released> Send for Owned<T> {}
// SAFETY: as above: several threads may read it.
unsafe impl<T: Released> Sync for Owned<T> {}

impl<T: Released> Owned<T> {
    /// Moves the structure out of a capsule, which then holds a released one.
    fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let at = capsule.cast::<PyCapsule>()?.pointer_checked(Some(T::NAME))?.cast::<T>().as_ptr();
        // SAFETY: a capsule of this name holds a structure of this type, by the PyCapsule protocol.
        let moved = Self(Box::new(unsafe { ptr::read(at) }));
        // SAFETY: as above. Nobody else has a reference: this thread is attached to the interpreter.
        let original = unsafe { &mut *at };
        if original.take_release().is_none() {
            // Already released: it must not be read, and `drop` finds no function to call.
            return Err(InvalidInput::new_err("the Arrow capsule was already used"));
        }
        Ok(moved)
    }

    /// Returns a structure of zeros, into which a producer writes.
    fn empty(zeroed: T) -> Self {
        Self(Box::new(zeroed))
    }
}

impl<T: Released> Drop for Owned<T> {
    fn drop(&mut self) {
        let at = ptr::from_mut(&mut *self.0);
        // The function itself marks the structure as released, so it needs the unchanged one.
        let mut copy = std::mem::ManuallyDrop::new(
            // SAFETY: the structure is valid, and the copy is only read here.
            unsafe { ptr::read(at) },
        );
        if let Some(release) = copy.take_release() {
            // SAFETY: the structure is ours, and `release` says that it was not released yet.
            unsafe { release(at) };
        }
    }
}

impl Schema {
    const ZEROED: Self = Self {
        format: ptr::null(),
        name: ptr::null(),
        metadata: ptr::null(),
        flags: 0,
        n_children: 0,
        children: ptr::null(),
        dictionary: ptr::null(),
        release: None,
        private_data: ptr::null_mut(),
    };

    fn format(&self) -> PyResult<&str> {
        if self.format.is_null() {
            return Err(malformed("a schema has no format"));
        }
        // SAFETY: the format of a schema that is not released is a string that ends in a zero.
        let format = unsafe { CStr::from_ptr(self.format) };
        format.to_str().map_err(|_| malformed("the format is no text"))
    }
}

impl Array {
    const ZEROED: Self = Self {
        length: 0,
        null_count: 0,
        offset: 0,
        n_buffers: 0,
        n_children: 0,
        buffers: ptr::null(),
        children: ptr::null(),
        dictionary: ptr::null(),
        release: None,
        private_data: ptr::null_mut(),
    };

    /// Returns the pointers to the array's buffers.
    fn buffers(&self) -> PyResult<&[*const c_void]> {
        let count = usize::try_from(self.n_buffers).ok().filter(|count| *count < 1 << 30);
        let count = count.ok_or_else(|| malformed("the number of buffers is out of range"))?;
        if count == 0 {
            return Ok(&[]);
        }
        if self.buffers.is_null() {
            return Err(malformed("the list of buffers is missing"));
        }
        // SAFETY: the list has `n_buffers` pointers, as long as the array is not released.
        Ok(unsafe { std::slice::from_raw_parts(self.buffers, count) })
    }

    /// Borrows the first `bytes` bytes of a buffer. The caller keeps the array alive as long.
    fn borrow(&self, index: usize, bytes: usize) -> PyResult<Borrowed> {
        let pointer = self.buffers()?.get(index).copied().unwrap_or(ptr::null());
        if bytes == 0 {
            return Ok(Borrowed(&[]));
        }
        // A process has less memory than this. Smaller lies about the length cannot be seen.
        if pointer.is_null() || bytes >= 1 << 46 {
            return Err(malformed("a buffer is missing, or larger than any memory"));
        }
        // SAFETY: the producer vouches that the buffer has the bytes that type, length and offsets
        // need, and that they do not change. The owner of the part keeps the array alive.
        Ok(Borrowed(unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) }))
    }
}

/// Returns what a pointer of a structure points to, with the lifetime of the structure's owner.
fn part_at<T>(pointer: *const T, _owner: &Owned<impl Released>) -> PyResult<&T> {
    // SAFETY: a pointer of a structure that is not released is null or valid as long as its parent.
    unsafe { pointer.as_ref() }.ok_or_else(|| malformed("a part of the array is missing"))
}

/// Returns the first pointer of a list of children.
fn first_child<T>(children: *const *const T) -> PyResult<*const T> {
    if children.is_null() {
        return Err(malformed("the list of children is missing"));
    }
    // SAFETY: the list has at least one pointer: the caller has checked the number of children.
    Ok(unsafe { *children })
}

fn malformed(what: &str) -> PyErr {
    InvalidInput::new_err(format!("malformed Arrow array: {what}"))
}

/// Returns the keys of an object that exports Arrow data; `None` if it does not.
pub(super) fn parts(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Part>>> {
    if let Some(export) = object.getattr_opt("__arrow_c_array__")? {
        let pair = export.call0()?.cast_into::<PyTuple>()?;
        let schema = Owned::<Schema>::take(&pair.get_item(0)?)?;
        let array = Arc::new(Owned::<Array>::take(&pair.get_item(1)?)?);
        return Ok(Some(vec![column(&schema, &array)?]));
    }
    if let Some(export) = object.getattr_opt("__arrow_c_stream__")? {
        let stream = Owned::<Stream>::take(&export.call0()?)?;
        return of_stream(object.py(), stream).map(Some);
    }
    Ok(None)
}

/// Reads all arrays of a stream.
fn of_stream(py: Python<'_>, mut stream: Owned<Stream>) -> PyResult<Vec<Part>> {
    let missing = || malformed("the stream has no functions");
    let get_schema = stream.0.get_schema.ok_or_else(missing)?;
    let get_next = stream.0.get_next.ok_or_else(missing)?;
    let mut schema = Owned::empty(Schema::ZEROED);
    // An engine may compute the arrays now, in threads that need the interpreter.
    let code = py.detach(|| {
        // SAFETY: the stream is not released, and the schema is ours to write.
        unsafe { get_schema(whole(&mut stream), whole(&mut schema)) }
    });
    succeeded(code, &mut stream)?;
    let mut parts = Vec::new();
    loop {
        let mut array = Owned::empty(Array::ZEROED);
        let code = py.detach(|| {
            // SAFETY: the stream is not released, and the array is ours to write.
            unsafe { get_next(whole(&mut stream), whole(&mut array)) }
        });
        succeeded(code, &mut stream)?;
        py.check_signals()?;
        if array.0.release.is_none() {
            return Ok(parts);
        }
        parts.push(column(&schema, &Arc::new(array))?);
    }
}

fn whole<T: Released>(owned: &mut Owned<T>) -> *mut T {
    ptr::from_mut(&mut *owned.0)
}

/// Returns the stream's message if a call has failed.
fn succeeded(code: c_int, stream: &mut Owned<Stream>) -> PyResult<()> {
    if code == 0 {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(last_error) = stream.0.get_last_error {
        // SAFETY: the stream is not released.
        let message = unsafe { last_error(whole(stream)) };
        if !message.is_null() {
            // SAFETY: the message ends in a zero, and is valid until the next call.
            let message = unsafe { CStr::from_ptr(message) };
            text = format!(": {}", message.to_string_lossy());
        }
    }
    Err(InvalidInput::new_err(format!("the Arrow stream failed with code {code}{text}")))
}

/// Returns the keys of an array; of a table, those of its only column.
fn column(schema: &Owned<Schema>, array: &Arc<Owned<Array>>) -> PyResult<Part> {
    let owner: Arc<dyn Any + Send + Sync> = array.clone();
    let place = |array: &Array| Ok::<_, PyErr>((size(array.offset)?, size(array.length)?));
    let (offset, len) = place(&array.0)?;
    let is_table = schema.0.format()? == "+s";
    let (schema_of, array_of, offset) = if is_table {
        if schema.0.n_children != 1 || array.0.n_children != 1 {
            let columns = schema.0.n_children;
            return Err(PyTypeError::new_err(format!(
                "the table has {columns} columns: select the one with the keys"
            )));
        }
        refuse_nulls(&array.0, offset, len)?;
        let child = part_at(first_child(array.0.children)?, array)?;
        let (inner, available) = place(child)?;
        if offset.checked_add(len).is_none_or(|end| end > available) {
            return Err(malformed("a column is shorter than its table"));
        }
        (part_at(first_child(schema.0.children)?, schema)?, child, offset.saturating_add(inner))
    } else {
        (&*schema.0, &*array.0, offset)
    };
    let is_bytes = |schema: &Schema| {
        Ok::<_, PyErr>(
            ["z", "Z", "vz"].contains(&schema.format()?) || schema.format()?.starts_with("w:"),
        )
    };
    let mut has_text = !is_bytes(schema_of)?;
    let values = if schema_of.dictionary.is_null() {
        values(schema_of, array_of, offset, len)?
    } else {
        let dictionary = part_at(array_of.dictionary, array)?;
        let (at, count) = place(dictionary)?;
        let values_of = part_at(schema_of.dictionary, schema)?;
        if !values_of.dictionary.is_null() {
            return Err(PyTypeError::new_err("a dictionary of dictionaries has no keys"));
        }
        has_text = !is_bytes(values_of)?;
        let values = values(values_of, dictionary, at, count)?;
        places(
            schema_of,
            array_of,
            offset,
            len,
            Part { values, len: count, has_text, _owner: None },
        )?
    };
    Ok(Part { values, len, has_text, _owner: Some(owner) })
}

fn size(number: i64) -> PyResult<usize> {
    let size = usize::try_from(number).ok().filter(|size| *size < 1 << 56);
    size.ok_or_else(|| malformed("a length is out of range"))
}

/// Returns an error if one of `len` values from `offset` on is null.
fn refuse_nulls(array: &Array, offset: usize, len: usize) -> PyResult<()> {
    let has_bitmap = array.buffers()?.first().is_some_and(|bitmap| !bitmap.is_null());
    if array.null_count == 0 || !has_bitmap {
        return Ok(());
    }
    let bitmap = array.borrow(0, offset.saturating_add(len).div_ceil(8))?;
    let is_null = |at: &usize| {
        let bit = offset + at;
        bitmap.get().get(bit / 8).is_none_or(|byte| byte >> (bit % 8) & 1 == 0)
    };
    match (0..len).find(is_null) {
        Some(at) => Err(InvalidInput::new_err(format!("value {at} is null, which is no key"))),
        None => Ok(()),
    }
}

/// The shape of a type's values.
enum Type {
    Fixed(usize),
    Integer { width: usize, signed: bool },
    Offsets { width: usize },
    Views,
}

fn type_of(format: &str) -> PyResult<Type> {
    let integer = |width, signed| Ok(Type::Integer { width, signed });
    match format {
        "c" => integer(1, true),
        "C" => integer(1, false),
        "s" => integer(2, true),
        "S" => integer(2, false),
        "i" => integer(4, true),
        "I" => integer(4, false),
        "l" => integer(8, true),
        "L" => integer(8, false),
        "z" | "u" => Ok(Type::Offsets { width: 4 }),
        "Z" | "U" => Ok(Type::Offsets { width: 8 }),
        "vz" | "vu" => Ok(Type::Views),
        _ => match format.strip_prefix("w:").and_then(|width| width.parse().ok()) {
            Some(width) if width < 1 << 31 => Ok(Type::Fixed(width)),
            _ => Err(PyTypeError::new_err(format!(
                "Arrow values of format {format:?} are no keys: keys are binary, text or integers"
            ))),
        },
    }
}

/// Returns the values of an array without a dictionary.
fn values(schema: &Schema, array: &Array, offset: usize, len: usize) -> PyResult<Values> {
    refuse_nulls(array, offset, len)?;
    let too_large = || malformed("a size is out of range");
    let end = offset.checked_add(len).ok_or_else(too_large)?;
    let whole = |width: usize| end.checked_mul(width).ok_or_else(too_large);
    let kind = type_of(schema.format()?)?;
    let rows = |width: usize| {
        let bytes = array.borrow(1, if len == 0 { 0 } else { whole(width)? })?;
        let skipped = if len == 0 { 0 } else { offset * width };
        Ok::<_, PyErr>(Borrowed(bytes.0.get(skipped..).unwrap_or_default()))
    };
    Ok(match kind {
        Type::Fixed(width) => Values::Fixed { bytes: rows(width)?, width },
        Type::Integer { width: 8, .. } if cfg!(target_endian = "little") => {
            Values::Fixed { bytes: rows(8)?, width: 8 }
        }
        Type::Integer { width, signed } => Values::Narrow { bytes: rows(width)?, width, signed },
        Type::Offsets { .. } if len == 0 => Values::Fixed { bytes: Borrowed(&[]), width: 0 },
        Type::Offsets { width } => {
            let size = end.checked_add(1).and_then(|count| count.checked_mul(width));
            let all = array.borrow(1, size.ok_or_else(too_large)?)?;
            let own = Borrowed(all.0.get(offset * width..).unwrap_or_default());
            let last = in_order(own.get(), width)?;
            let offsets = if width == 4 { Offsets::Short(own) } else { Offsets::Long(own) };
            Values::Offsets { offsets, bytes: array.borrow(2, last)? }
        }
        Type::Views => {
            let pointers = array.buffers()?.len();
            let variadic = pointers.checked_sub(3);
            let variadic = variadic.ok_or_else(|| malformed("views have at least 3 buffers"))?;
            let sizes = array.borrow(pointers - 1, variadic * 8)?;
            let sizes = sizes.get().as_chunks::<8>().0.iter().map(|size| i64::from_ne_bytes(*size));
            let buffers = sizes.zip(2..).map(|(bytes, index)| array.borrow(index, size(bytes)?));
            let buffers: Vec<Borrowed> = buffers.collect::<PyResult<_>>()?;
            let views = rows(16)?;
            for view in views.get().as_chunks::<16>().0 {
                viewed(view, &buffers).ok_or_else(|| malformed("a view leaves its buffer"))?;
            }
            Values::Views { views, buffers }
        }
    })
}

/// Checks that offsets ascend from 0 on, and returns the last.
fn in_order(offsets: &[u8], width: usize) -> PyResult<usize> {
    let mut before = 0_i64;
    let mut next = |offset: i64| {
        let ascends = offset >= before;
        before = offset;
        ascends
    };
    let ascend = if width == 4 {
        offsets.as_chunks::<4>().0.iter().all(|offset| next(i32::from_ne_bytes(*offset).into()))
    } else {
        offsets.as_chunks::<8>().0.iter().all(|offset| next(i64::from_ne_bytes(*offset)))
    };
    if ascend { size(before) } else { Err(malformed("the offsets are not in order")) }
}

/// Returns the bytes of a view; `None` if they leave the buffers.
pub(super) fn viewed<'a>(view: &'a [u8; 16], buffers: &'a [Borrowed]) -> Option<&'a [u8]> {
    let [len, _, buffer, start] = [0, 4, 8, 12].map(|at| {
        let word = view.get(at..at + 4).and_then(|word| word.try_into().ok());
        i32::from_ne_bytes(word.unwrap_or_default())
    });
    let len = usize::try_from(len).ok()?;
    if len <= 12 {
        return view.get(4..4 + len);
    }
    let (buffer, start) = (usize::try_from(buffer).ok()?, usize::try_from(start).ok()?);
    buffers.get(buffer)?.get().get(start..start.checked_add(len)?)
}

/// Returns the keys whose positions in a dictionary an array holds.
fn places(
    schema: &Schema,
    array: &Array,
    offset: usize,
    len: usize,
    dictionary: Part,
) -> PyResult<Values> {
    let Type::Integer { .. } = type_of(schema.format()?)? else {
        return Err(malformed("positions in a dictionary must be integers"));
    };
    let values = values(schema, array, offset, len)?;
    let positions = Part { values, len, has_text: true, _owner: None };
    let mut places = Vec::with_capacity(len);
    positions.each(0..len, &mut |position| {
        // All integers are 8 bytes by now, little-endian.
        let position = widened_place(position);
        places.push(position);
    });
    if places.iter().any(|place| *place >= dictionary.len) {
        return Err(malformed("a position is outside of the dictionary"));
    }
    Ok(Values::Dictionary { places, values: Box::new(dictionary) })
}

fn widened_place(position: &[u8]) -> usize {
    let position = position.try_into().map_or(u64::MAX, u64::from_le_bytes);
    usize::try_from(position).unwrap_or(usize::MAX)
}

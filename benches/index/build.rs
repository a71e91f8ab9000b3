//! Building rows, and the bytes of a segment, in memory from blooms in memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use alloy_primitives::B256;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::{Append, FileKind, ReadAt, Settings, Storage, WriteStorage, Writer};
use chainsieve::simd::Backend;

use crate::blooms::Filter;
use crate::store::link;
use testkit::timer::Report;

/// Headers of a section, which are transposed together.
const SECTION: usize = 8_192;
/// Headers of the largest segment.
const SEGMENT: usize = 32 * SECTION;

/// Measures a writer that gets the headers of one segment after another. The hashing of headers is
/// not timed.
///
/// The writer copies, transposes and counts the headers and computes checksums, in memory, until
/// only the last section of the segment is missing: this is `rows`. With the last section, the
/// segment is written: all together is `segment`. The memory of the writer and of the file is that
/// of the segment before, as in a long build.
///
/// The bound is copying the blooms once. The writer makes such a copy before it starts, and copies
/// the file in memory at the end.
pub(crate) fn run(report: &mut Report, filters: &[Filter]) {
    let segments = if report.is_quick() { 3 } else { 8 };
    for backend in Backend::available() {
        let settings = Settings::new("bench").expect("a label");
        let mut writer = Writer::open(Memory::default(), &settings).expect("a new index");
        writer = writer.with_confirmations(0).with_backend(backend);
        let (mut chain, mut parent) = (LinkedHeaders::new(), B256::ZERO);
        let (mut rows, mut whole) = (Duration::MAX, Duration::MAX);
        let mut rlp = Vec::new();
        for segment in 0..=segments {
            let (start, end) = (segment * SEGMENT, (segment + 1) * SEGMENT);
            let mut append = |numbers: Range<usize>| {
                rlp.clear();
                let filters = filters.iter().cycle().skip(numbers.start);
                for (number, filter) in numbers.zip(filters) {
                    parent = link(parent, number as u64, filter, &mut rlp);
                }
                chain = chain.following();
                chain.extend_from_rlp(&rlp).expect("linked headers");
                let started = Instant::now();
                let _ = writer.append(&chain).expect("the next headers");
                started.elapsed()
            };
            let first = append(start..end - SECTION);
            let last = append(end - SECTION..end);
            // The first segment allocates the memory, so it is not measured.
            if segment > 0 {
                rows = rows.min(first);
                whole = whole.min(first + last);
            }
        }
        for (name, headers, time) in
            [("rows", SEGMENT - SECTION, rows), ("segment", SEGMENT, whole)]
        {
            let speed = (headers * 256) as f64 / time.as_secs_f64() / 1e9;
            let name = format!("{name} of an index built in memory, {}", backend.name());
            report.value(&name, speed, "GB/s of filters");
        }
    }
    let (from, mut to) = (filters[..SEGMENT.min(filters.len())].to_vec(), Vec::new());
    let nanos = report.figure("filters copied, each", from.len(), || {
        to.clear();
        to.extend_from_slice(&from);
    });
    report.value("filters copied in memory", 256.0 / nanos, "GB/s");
}

/// Files in memory. A segment reuses the memory of the one before.
#[derive(Default)]
struct Memory {
    files: RefCell<HashMap<String, File>>,
    segment: File,
}

#[derive(Clone, Default)]
struct File(Rc<RefCell<Vec<u8>>>);

impl ReadAt for File {
    fn length(&self) -> io::Result<u64> {
        self.0.borrow().length()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.borrow().read_exact_at(buffer, offset)
    }
}

impl Append for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn file(&self, name: &str) -> io::Result<File> {
        Ok(self.files.borrow().get(name).ok_or(io::ErrorKind::NotFound)?.clone())
    }
}

impl Storage for Memory {
    type File = File;

    fn open(&self, name: &str, _: FileKind) -> io::Result<File> {
        self.file(name)
    }
}

impl WriteStorage for Memory {
    type Appender = File;
    type Lock = ();

    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let file = if name.ends_with(".segment") { self.segment.clone() } else { File::default() };
        file.0.borrow_mut().clear();
        self.files.borrow_mut().insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn append_to(&self, name: &str) -> io::Result<File> {
        self.file(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.files.borrow_mut().remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.files.borrow_mut().insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.borrow_mut().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files.borrow().keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

//! Container files of filters: reading from memory and as a stream gives the same, and writing the
//! intact part again gives the same bytes. The bytes are also the contents of a valid file, in
//! which one bit is then flipped.
#![no_main]

use bitcoin::BlockHash;
use bitcoin::bip158::FilterHeader;
use bitcoin::hashes::Hash as _;
use chainsieve::bitcoin;
use chainsieve::btc::bip158::container::{
    BatchReader, ContainerError, Header, Intact, Records, Writer,
};
use libfuzzer_sys::fuzz_target;

/// Returns the intact part and the damage after it, on which all ways of reading agree.
fn read(file: &[u8]) -> Result<(Intact, Option<ContainerError>), ContainerError> {
    let records = Records::new(file);
    let streamed = BatchReader::new(file);
    let (mut records, mut streamed) = match (records, streamed) {
        (Ok(records), Ok(streamed)) => (records, streamed),
        (Err(error), Err(other)) => {
            assert_eq!(error, other);
            return Err(error);
        }
        (records, streamed) => panic!("{:?}, {:?}", records.err(), streamed.err()),
    };
    let mut written = Writer::create(Vec::new(), *records.header()).expect("memory");
    let mut damage = None;
    loop {
        let from_stream = streamed.read(0);
        match records.next() {
            None => {
                assert!(damage.is_some() || (from_stream.is_ok() && streamed.items().len() == 0));
                break;
            }
            Some(Err(error)) => {
                assert_eq!(from_stream, Err(error));
                damage = Some(error);
            }
            Some(Ok(item)) => {
                assert_eq!(from_stream, Ok(()));
                assert_eq!(streamed.items().collect::<Vec<_>>(), [item]);
                written.append(&item.block_hash, item.content).expect("what was read");
            }
        }
    }
    let intact = *records.intact();
    assert_eq!(intact, *written.intact());
    assert_eq!(intact, *streamed.intact());
    assert_eq!(BatchReader::new(file)?.recover(), Ok((intact, damage)));
    let bytes = usize::try_from(intact.bytes).expect("in memory");
    assert_eq!(written.finish().expect("memory"), file[..bytes]);
    assert_eq!(damage.is_none(), bytes == file.len());
    Ok((intact, damage))
}

fuzz_target!(|data: &[u8]| {
    let _ = read(data);
    let Some((&[a, b, c, first], contents)) = data.split_first_chunk() else { return };
    let header = Header {
        network_magic: [a; 4],
        start_height: u32::from(b),
        previous_filter_header: FilterHeader::from_byte_array([c; 32]),
    };
    let mut writer = Writer::create(Vec::new(), header).expect("memory");
    let mut ends = vec![Header::LEN];
    for content in contents.chunks(usize::from(first) + 1) {
        let hash = BlockHash::from_byte_array([content.len().to_le_bytes()[0]; 32]);
        writer.append(&hash, content).expect("short");
        ends.push(usize::try_from(writer.intact().bytes).expect("in memory"));
    }
    let mut file = writer.finish().expect("memory");
    let records = ends.len() - 1;
    let whole = read(&file).expect("what was written");
    assert!(whole.0.records as usize == records && whole.1.is_none());
    let bit = (usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16) % (file.len() * 8);
    file[bit / 8] ^= 1 << (bit % 8);
    // The checksums find each single flipped bit, and the records before it are intact.
    let before = ends.iter().filter(|end| **end <= bit / 8).count();
    match read(&file) {
        Err(_) => assert_eq!(before, 0),
        Ok((intact, damage)) => {
            assert!(damage.is_some() && intact.records as usize == before - 1);
        }
    }
});

//! Reads the Ethereum files of the corpus through the file readers.

use std::fs::File;

use chainsieve::eth::files::{FileFormat, HeaderReader, Input};
use chainsieve::eth::header::LinkedHeaders;

use testkit::eth::corpus::{EthCorpus, EthFile, Format};

fn open(corpus: &EthCorpus, file: &EthFile) -> Input<File> {
    let file = File::open(corpus.root().join(&file.name)).expect("a file of the corpus");
    Input::seekable(file).expect("a file seeks")
}

fn chain(corpus: &EthCorpus, file: &EthFile, format: FileFormat) -> LinkedHeaders {
    let mut chain = LinkedHeaders::new();
    let mut headers = HeaderReader::new(open(corpus, file)).expect("a format");
    assert_eq!(headers.format(), format, "{}", file.name);
    while let Some(batch) = headers.next_batch().expect("headers") {
        batch.link(&mut chain).expect("linked");
    }
    assert_eq!(headers.offset(), corpus.read(&file.name).len() as u64, "{}", file.name);
    let (first, last) =
        file.entry["number"].as_str().and_then(|n| n.split_once("..")).expect("a range");
    let [first, last] = [first, last].map(|number| number.parse().expect("a number"));
    assert_eq!(chain.numbers(), Some(first..=last), "{}", file.name);
    assert_eq!(chain.last_hash(), Some(file.hash()), "{}", file.name);
    chain
}

#[test]
fn runs_of_headers_as_files() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut count = 0;
    for file in corpus.of(Format::HeaderRun) {
        count += chain(&corpus, file, FileFormat::Rlp).len() as u64;
    }
    assert_eq!(count, corpus.of(Format::HeaderRun).map(|file| file.number("count")).sum::<u64>());
    let mut blocks = 0;
    for file in corpus.of(Format::BlockJson) {
        let mut headers = HeaderReader::new(open(&corpus, file)).expect("a format");
        assert_eq!(headers.format(), FileFormat::Json, "{}", file.name);
        let header = headers.next().expect("one").expect("a header");
        assert_eq!((header.hash(), headers.next()), (file.hash(), None), "{}", file.name);
        blocks += 1;
    }
    assert!(blocks > 10, "{blocks}");
}

mod archives {
    use chainsieve::eth::files::{Archive, BlockEntries, EntryKind, body_transactions};
    use chainsieve::eth::receipts::BlockReceipts;

    use super::*;

    /// Reads an archive that another program wrote. The archive's headers form one chain up to the
    /// known hash, and its file name contains the first bytes of its accumulator.
    #[test]
    fn an_archive_of_mainnet() {
        let Some(corpus) = EthCorpus::open() else { return };
        let file = corpus.of(Format::Era1).next().expect("an archive");
        let chain = chain(&corpus, file, FileFormat::Era);
        assert_eq!(chain.len(), 8192);
        // Read the headers one at a time, from an input that can't seek.
        let bytes = corpus.read(&file.name);
        let headers = HeaderReader::new(Input::new(&bytes[..])).expect("a format");
        let hashes = headers.map(|header| header.expect("a header").hash());
        assert!(hashes.eq(chain.blocks().map(|block| block.hash)));

        let mut count = 0;
        let mut bodies = BlockEntries::bodies(open(&corpus, file));
        while let Some((number, entry)) = bodies.next_entry().expect("a body") {
            assert_eq!(number, count);
            let body = entry.decompress(1 << 20).expect("a body");
            // The first 8,192 blocks of mainnet contain no transaction.
            assert_eq!(body_transactions(&body).expect("a body").len(), 0, "block {number}");
            count += 1;
        }
        let mut receipts = BlockEntries::receipts(open(&corpus, file));
        while let Some((number, entry)) = receipts.next_entry().expect("receipts") {
            let block = chain.block(number).expect("a block of the archive");
            let rlp = entry.decompress(1 << 20).expect("receipts");
            let receipts = BlockReceipts::from_rlp_list(&rlp).expect("receipts");
            receipts.verify(block.receipts_root, block.bloom.into()).expect("the block's");
            count -= 1;
        }
        assert_eq!(count, 0);

        let mut archive = Archive::new(open(&corpus, file));
        let mut accumulator = None;
        while let Some(entry) = archive.next_entry().expect("an entry") {
            if entry.kind() == EntryKind::Accumulator {
                accumulator = Some(entry.read(32).expect("32 bytes"));
            }
        }
        let accumulator = alloy_primitives::hex::encode(accumulator.expect("one"));
        assert!(file.name.ends_with(&format!("-{}.era1", &accumulator[..8])), "{accumulator}");
    }
}

//! Malformed era archives.

use super::*;

fn refused(name: &str, contents: &[u8], words: &[&str]) {
    let file = TempFile::new(name, contents);
    fails(&["eth", "stats", file.path()], b"", BAD_INPUT, &[&[name], words].concat());
}

#[test]
fn indexes_are_checked_against_the_headers() {
    let blocks = Block::both();
    let whole = write::era1(&blocks);
    let index = 8 + 8 * 4; // two offsets between the first number and the count
    let cut = &whole[..whole.len() - index];
    refused("cut.era1", cut, &["ends after 2 headers without an index"]);
    let mut other = whole.clone();
    let at = other.len() - 8;
    other[at] = 3;
    refused("count.era1", &other, &["it has 3 blocks, but 2 headers were read"]);
    let mut other = whole.clone();
    other[at - 8] ^= 1;
    refused("offset.era1", &other, &["it places header 1 at byte"]);
    let mut other = whole.clone();
    other[at - 24] ^= 1;
    refused(
        "first.era1",
        &other,
        &["starts at block 17686110, but the first header is that of block 17686111"],
    );
    let mut ere = write::ere(&blocks);
    let at = ere.len() - 16;
    ere[at] = 9;
    refused("components.ere", &ere, &["9 entries each"]);
}

#[test]
fn hostile_records() {
    let block = Block::read(FIRST);
    let version = write::record(0x3265, &[]);
    let file = |records: &[Vec<u8>]| [&version[..], &records.concat()].concat();
    let mut huge = write::record(3, &[0; 16]);
    huge[2..6].copy_from_slice(&u32::MAX.to_le_bytes());
    refused(
        "huge.era1",
        &file(&[huge.clone()]),
        &["byte 8", "4294967295 bytes, but the input ends after 16"],
    );
    // The archive is read from a pipe, so its total length is unknown.
    let piped = run_with(&["eth", "stats", "-"], &file(&[huge]));
    assert_eq!(piped.code, BAD_INPUT);
    assert!(piped.stderr.contains("4294967295 bytes, but the limit is"), "{}", piped.stderr);
    let mut reserved = write::record(3, &[]);
    reserved[6] = 1;
    refused("reserved.era1", &file(&[reserved]), &["byte 8", "0x0001, not 0"]);
    refused(
        "plain.era1",
        &file(&[write::record(3, &block.header)]),
        &["byte 8: not framed Snappy"],
    );
    // The compressed data is smaller than the limit, but decompresses to a megabyte of zeros.
    let bomb = write::snappy(&vec![0; 1 << 20]);
    assert!(bomb.len() < 64 << 10);
    refused(
        "bomb.era1",
        &file(&[write::record(3, &bomb)]),
        &["uncompressed entry has more than 65536 bytes"],
    );
    let mut damaged = write::snappy(&block.header);
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    refused("damaged.era1", &file(&[write::record(3, &damaged)]), &["byte 8"]);
    let beacon = file(&[write::record(1, &write::snappy(b"a signed beacon block"))]);
    refused("beacon.era", &beacon, &["consensus layer"]);
    refused("nothing.era1", &version, &["no headers"]);
    refused("head.era1", &file(&[vec![3, 0, 1]]), &["has 8 bytes, but the input ends after 3"]);
}

#[test]
fn transactions_of_an_archive_show_the_hashes() {
    // The answer names a transaction hash, and the archive contains other bodies than those of the
    // blocks.
    let block = Block::read(FIRST);
    let case = audit::Case::new("transactions");
    let more = ["--anchor", &case.anchor, "--receipts", case.receipts.path()];
    let mut logs = answer();
    logs[0]["transactionHash"] = json!(B256::repeat_byte(1));
    // The archive's bodies are empty. The command reports that these bodies are not the
    // transactions of their blocks.
    let args = [&more[..], &["--transactions", case.receipts.path()]].concat();
    let json = case.audit_with(&logs, &args, YES);
    assert_eq!(json["transaction_hashes_unbound"], 1);
    let warning = text(&json["warnings"][0]);
    assert!(warning.contains(&format!("transactions of block {}", block.number)), "{warning}");
    assert!(warning.contains(&hex0x(&items(&block.header)[4][1..])), "{warning}");
}

/// Returns the root of a trie with one value: a leaf whose path is the whole key, the RLP of 0.
fn root_of_one(value: &[u8]) -> Vec<u8> {
    let leaf = write::list(&[write::string(&[0x20, 0x80]), write::string(value)]);
    write::string(keccak256(leaf).as_slice())
}

#[test]
fn a_transaction_shows_its_hash() {
    // A block with one transaction, and a real receipt under its receipts root.
    let real = Block::read(FIRST);
    let receipt = real.receipts.iter().find(|receipt| receipt[0] < 0xc0).expect("a typed one");
    let transaction = [&[2][..], &write::list(&[write::string(b"nobody's")])].concat();
    let mut fields = items(&real.header);
    fields[4] = root_of_one(&transaction);
    fields[5] = root_of_one(receipt);
    fields[6] = items(&receipt[1..])[2].clone();
    let header = write::list(&fields);
    let hash = keccak256(&header).to_string();
    let receipts = vec![receipt.clone()];
    let block = Block { number: real.number, hash: hash.clone(), header: header.clone(), receipts };
    let headers = TempFile::new("one.rlp", header);
    let body = write::list(&[write::list(&[write::string(&transaction)]), vec![0xc0]]);
    let archive = write::era1_with(std::slice::from_ref(&block), &body);
    let archive = TempFile::new("one.era1", archive);
    let audit = |transaction_hash: B256, code| {
        let mut logs = block.logs();
        assert!(!logs.is_empty());
        for log in &mut logs {
            log["transactionHash"] = json!(transaction_hash);
        }
        let logs = TempFile::new("one.logs.json", json!(logs).to_string());
        let args = ["eth", "audit", headers.path(), "--logs", logs.path(), "--chain", "mainnet"];
        let path = archive.path();
        let more = ["--receipts", path, "--transactions", path, "--anchor", &hash];
        json_of(&[&args[..], &more].concat(), code)
    };
    let json = audit(keccak256(&transaction), YES);
    assert_eq!(json["transaction_hashes_unbound"], 0);
    let json = audit(B256::repeat_byte(1), WRONG);
    let finding = &json["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["field"]),
        (&json!("wrong_field"), &json!("transactionHash"))
    );
    assert_eq!(finding["actual"], json!(keccak256(&transaction)));
}

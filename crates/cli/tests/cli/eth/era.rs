//! Transactions of era archives.

use super::*;

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

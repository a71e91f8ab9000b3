//! Tests of every input format of headers, and of a whole archive.

use std::collections::BTreeSet;

use super::*;

/// Checks the printed facts of the first block, whatever the input format.
fn check_first(json: &Value) {
    let block = Block::read(FIRST);
    let header = &json["headers"][0];
    assert_eq!(header["hash"], json!(block.hash));
    assert_eq!(header["number"], 17_686_111);
    assert_eq!(header["layout"], "shanghai");
    assert_eq!(header["fields"], 17);
    assert_eq!(header["bytes"], block.header.len());
    assert_eq!(header["logs_bloom"]["bits_set"], block.bits_set());
    assert_eq!(header["logs_bloom"]["bytes"], hex0x(block.bloom()));
    let fill = f64::from(block.bits_set()) / 2048.0;
    let rate = header["logs_bloom"]["rates"][1].as_f64().expect("a rate");
    assert!((rate - fill.powi(6)).abs() < 1e-12, "{rate}");
    // Timestamp and gas as block explorers show them.
    assert_eq!(header["time"], "2023-07-13 17:38:23 UTC");
    assert_eq!(header["gas_used"], 14_877_622);
    assert_eq!(header["base_fee_per_gas"], 48_582_086_276_u64);
    assert_eq!(header["extra_data"], hex0x(b"by builder0x69"));
    assert_eq!(header["requests_hash"], Value::Null);
}

#[test]
fn a_header_in_every_form() {
    let blocks = Block::both();
    let [first, second] = blocks.each_ref().map(|block| &block.header);
    check_first(&json_of(&["eth", "header", &hex::encode(first)], YES));
    check_first(&json_of(&["eth", "header", &hex0x(first)], YES));
    let objects = [first, second].map(|header| write::rpc_header(header));
    let replies = objects.each_ref().map(write::reply);
    let block = write::list(&[first.clone(), write::list(&[vec![0; 300]]), vec![0xc0]]);
    let forms: Vec<(&str, Vec<u8>)> = vec![
        ("rlp", [&first[..], second].concat()),
        ("blocks of geth export", [&block[..], second].concat()),
        ("object", format!("{:#}\n{}", objects[0], objects[1]).into_bytes()),
        ("lines", format!("{}\n\n{}\n", objects[0], objects[1]).into_bytes()),
        ("array", json!(objects).to_string().into_bytes()),
        ("replies", format!("{}\n{}", replies[0], replies[1]).into_bytes()),
        ("batch", format!("\u{feff}{:#}", json!(replies)).into_bytes()),
        ("reply with an array", write::reply(&json!(objects)).to_string().into_bytes()),
        ("raw in replies", json!([first, second].map(|h| write::reply(&json!(hex0x(h))))).to_string().into()),
        ("strings", json!([hex0x(first), hex0x(second)]).to_string().into_bytes()),
        ("subscription", json!([{ "method": "eth_subscription", "params": { "subscription": "0x1", "result": objects[0] } }, objects[1]]).to_string().into()),
        ("hex lines", format!("# two\n{}\n{}\n", hex0x(first), hex::encode(second)).into_bytes()),
        ("era1", write::era1(&blocks)),
        ("ere", write::ere(&blocks)),
    ];
    for (name, contents) in forms {
        let file = TempFile::new(&format!("form-{}", name.replace(' ', "-")), &contents);
        let json = json_of(&["eth", "header", file.path()], YES);
        check_first(&json);
        assert_eq!((&json["count"], &json["linked"]), (&json!(2), &json!(true)), "{name}");
        assert_eq!(json["headers"][1]["hash"], json!(blocks[1].hash), "{name}");
        let piped = run_with(&["eth", "header", "-", "--json"], &contents);
        assert_eq!(piped.code, YES, "{name}: {}", piped.stderr);
        let piped: Value = serde_json::from_str(&piped.stdout).expect("JSON");
        assert_eq!(piped["headers"][1]["hash"], json["headers"][1]["hash"], "{name}");
    }
}

#[test]
fn headers_of_every_fork() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ethereum/headers.json");
    let json = json_of(&["eth", "header", path.to_str().expect("text")], YES);
    let headers = json["headers"].as_array().expect("headers");
    assert!(headers.len() >= 100);
    assert_eq!((&json["count"], &json["linked"]), (&json!(headers.len()), &json!(false)));
    let layouts: BTreeSet<_> = headers.iter().map(|header| text(&header["layout"])).collect();
    let forks = ["amsterdam", "cancun", "frontier", "london", "prague", "shanghai"];
    assert!(forks.iter().all(|fork| layouts.contains(fork)), "{layouts:?}");
    let mut amsterdam = headers.iter().filter(|header| header["layout"] == "amsterdam");
    assert!(amsterdam.all(|header| header["slot_number"].is_u64()));
    let page = run(&["eth", "header", path.to_str().expect("text")]);
    assert!(page.stdout.contains("do not form one chain"));
    assert!(page.stdout.lines().count() > headers.len());
}

//! Tests of decoding, against the documentation of Solidity.

use chainsieve::alloy_primitives::{Address, B256, Bytes, Log, address, b256, bytes, keccak256};

use super::*;

const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

fn log(topics: Vec<B256>, data: Bytes) -> Log {
    Log::new_unchecked(Address::ZERO, topics, data)
}

fn both() -> EventDecoder {
    EventDecoder::new()
        .signature("event Transfer(address indexed from, address indexed to, uint256 value)")
        .and_then(|it| {
            it.signature("event Transfer(address indexed, address indexed, uint256 indexed id);")
        })
        .unwrap()
}

/// The `Transfer` events of EIP-20 and EIP-721 have the same first topic. The number of topics
/// distinguishes the two events.
#[test]
fn two_events_of_one_topic_are_told_apart() {
    let events = both();
    assert_eq!(events.len(), 2);
    let who = |byte| B256::left_padding_from(&[byte; 20]);
    let amount = B256::with_last_byte(7);
    let token = log(vec![TRANSFER, who(1), who(2)], amount.to_vec().into());
    let json = events.decode(&token).unwrap().unwrap().to_json();
    assert_eq!(json["arguments"]["value"], "7");
    assert_eq!(json["arguments"]["from"], format!("0x{}", "01".repeat(20)));
    let item = log(vec![TRANSFER, who(1), who(2), amount], Bytes::new());
    let json = events.decode(&item).unwrap().unwrap().to_json();
    assert_eq!(json["arguments"]["id"], "7");
    assert_eq!(json["arguments"]["0"], format!("0x{}", "01".repeat(20)));
    let neither = log(vec![TRANSFER, who(1)], amount.to_vec().into());
    assert!(events.decode(&neither).unwrap_err().to_string().contains("1 indexed"));
    let short = log(vec![TRANSFER, who(1), who(2)], Bytes::from(vec![0; 31]));
    assert!(events.decode(&short).is_err());
    assert_eq!(events.decode(&log(vec![who(3)], Bytes::new())), Ok(None));
    assert_eq!(events.decode(&log(vec![], Bytes::new())), Ok(None));
}

/// The example of Solidity's "Contract ABI Specification": `f(uint256,uint32[],bytes10,bytes)` with
/// `(0x123, [0x456, 0x789], "1234567890", "Hello, world!")`, here as the data of an event.
#[test]
fn values_are_those_of_the_specification() {
    let events =
        EventDecoder::new().signature("event f(uint256 a, uint32[] b, bytes10 c, bytes d)");
    let events = events.unwrap();
    let topic = keccak256("f(uint256,uint32[],bytes10,bytes)");
    let data = bytes!(
        "0000000000000000000000000000000000000000000000000000000000000123"
        "0000000000000000000000000000000000000000000000000000000000000080"
        "3132333435363738393000000000000000000000000000000000000000000000"
        "00000000000000000000000000000000000000000000000000000000000000e0"
        "0000000000000000000000000000000000000000000000000000000000000002"
        "0000000000000000000000000000000000000000000000000000000000000456"
        "0000000000000000000000000000000000000000000000000000000000000789"
        "000000000000000000000000000000000000000000000000000000000000000d"
        "48656c6c6f2c20776f726c642100000000000000000000000000000000000000"
    );
    let whole = log(vec![topic], data.clone());
    let json = events.decode(&whole).unwrap().unwrap().to_json();
    let arguments = serde_json::json!({
        "a": "291",
        "b": ["1110", "1929"],
        "c": format!("0x{}", in_hex("1234567890")),
        "d": format!("0x{}", in_hex("Hello, world!")),
    });
    assert_eq!(json["arguments"], arguments);
    // Truncated data gives an error, or decodes to the same values if only padding at the end is
    // missing.
    for end in 0..data.len() {
        match events.decode(&log(vec![topic], data.slice(..end))) {
            Err(_) => {}
            Ok(decoded) => assert_eq!(decoded.unwrap().to_json()["arguments"], arguments),
        }
    }
}

fn in_hex(text: &str) -> String {
    hex::encode(text)
}

/// For an indexed argument of dynamic size, a log contains only the hash.
#[test]
fn an_indexed_text_is_its_hash() {
    let events =
        EventDecoder::new().signature("event Named(string indexed name, bytes32 indexed word)");
    let events = events.unwrap();
    let (name, word) = (keccak256("someone"), B256::repeat_byte(5));
    let topics = vec![keccak256("Named(string,bytes32)"), name, word];
    let json = events.decode(&log(topics, Bytes::new())).unwrap().unwrap().to_json();
    let expected = serde_json::json!({ "name": { "keccak256": name }, "word": word });
    assert_eq!(json["arguments"], expected);
}

#[test]
fn what_names_no_event_is_refused() {
    let of = |text: &str| EventDecoder::new().signature(text);
    assert!(matches!(of("Transfer"), Err(EventDecoderError::Signature(_))));
    let anonymous = EventDecoderError::Signature(QueryError::EventAnonymous);
    assert_eq!(of("event A() anonymous").err(), Some(anonymous));
    let deep = format!("event A({}uint256{} a)", "(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(of(&deep), Err(EventDecoderError::TooDeep(_))));
    let deep = format!("event A(uint256{} a)", "[]".repeat(33));
    assert!(matches!(of(&deep), Err(EventDecoderError::TooDeep(_))));
    assert!(of(&format!("event A(uint256{} a)", "[]".repeat(30))).is_ok());
    let abi = |text: &str| EventDecoder::new().json_abi(text);
    assert!(matches!(abi("[]"), Err(EventDecoderError::Empty)));
    assert!(matches!(abi("{}"), Err(EventDecoderError::Abi(_))));
    assert_eq!(abi(&" ".repeat(MAX_ABI + 1)).err(), Some(EventDecoderError::TooLong(MAX_ABI + 1)));
    let usdt = address!("dac17f958d2ee523a2206206994597c13d831ec7");
    let query = both().query().address(usdt);
    assert!(query.matches(
        &Log::new_unchecked(usdt, vec![TRANSFER], Bytes::new()),
        chainsieve::eth::log_query::Semantics::Geth
    ));
}

/// A query and a decoder read the same texts as the same event.
#[test]
fn queries_and_decoders_read_the_same_texts() {
    for text in [
        "Transfer(address,address,uint256)",
        "event Transfer(address indexed from, address indexed to, uint value);",
        " Transfer(address from, address to, uint256 indexed) ",
        "E()",
        "event $_a9(bool)",
        "E((address,uint)[] pairs,\n    bytes32 indexed id)",
        "E((bool,(int8[]))[2] nested, bytes1[3][] list)",
        "E(tuple(address,uint)[] pairs, tuple(tuple(bool)) nested)",
    ] {
        let query = LogQuery::new().event(text).expect(text);
        let events = EventDecoder::new().signature(text).expect(text);
        assert_eq!(events.query(), query, "{text}");
    }
    for text in [
        "",
        "Transfer",
        "(bool)",
        "E (bool)",
        "E(bool",
        "E(bool))",
        "E(bool,)",
        "E(())",
        "E(unit256)",
        "E(uint7)",
        "E(uint08)",
        "E(byte)",
        "E(IERC20 token)",
        "E(Contract.Enum e)",
        "E(string memory)",
        "E((bool a))",
        "E(bool[0])",
        "E(bool a b)",
        "event(bool)",
        "function f(bool)",
        "event E(bool) anonymous",
    ] {
        LogQuery::new().event(text).expect_err(text);
        EventDecoder::new().signature(text).expect_err(text);
    }
}

//! `filterload` and `filteradd` against `bitcoin`'s messages. Both accept or both reject a payload,
//! except where the library follows Core and `bitcoin` does not.

use chainsieve::bitcoin::consensus::encode::{deserialize, serialize};
use chainsieve::bitcoin::p2p::message_bloom::{FilterAdd, FilterLoad};
use chainsieve::btc::bip37::{AddedData, BloomFilter, PayloadError};

use testkit::Rng;
use testkit::btc::slow_bip37::SlowFilter;
use testkit::btc::slow_bip37::tree::compact_size;

/// Damages some payloads: cuts them, appends bytes, or changes one of the first bytes.
fn damage(rng: &mut Rng, payload: &mut Vec<u8>) {
    match rng.below(5) {
        0 => {
            let end = rng.below(payload.len() + 1);
            payload.truncate(end);
        }
        1 => {
            let more = 1 + rng.below(3);
            payload.extend(rng.bytes(more));
        }
        2 if !payload.is_empty() => {
            let at = rng.below(payload.len().min(4));
            payload[at] = *rng.pick(&[0, 1, 0xfc, 0xfd, 0xfe, 0xff]);
        }
        _ => {}
    }
}

#[test]
fn filterload_as_bitcoin_reads_it() {
    let mut rng = Rng::new(1);
    let (mut accepted, mut refused, mut by_limits, mut by_flags) = (0, 0, 0, 0);
    for case in 0..6_000 {
        let size = *rng.pick(&[0, 1, 2, 3, 9, 252, 253, 254, 600, 35_999, 36_000, 36_001]);
        let size = if size > 600 && !rng.one_in(8) { 17 } else { size };
        let filter = SlowFilter {
            data: rng.bytes(size),
            hash_funcs: *rng.pick(&[0, 1, 2, 11, 49, 50, 51, u32::MAX]),
            tweak: rng.u32(),
            flags: *rng.pick(&[0, 1, 2, 0, 1, 2, 3, 4, 0x80, 0x81, 0xff]),
        };
        let mut payload = filter.payload();
        damage(&mut rng, &mut payload);
        let name = format!("case {case}: {:.120}", hex::encode(&payload));

        let by_bitcoin = deserialize::<FilterLoad>(&payload);
        let ours = BloomFilter::decode(&payload);
        match (&ours, &by_bitcoin) {
            (Ok(filter), Ok(message)) => {
                accepted += 1;
                assert_eq!(filter.encode(), payload, "{name}");
                assert_eq!(serialize(message), payload, "{name}");
                assert_eq!(BloomFilter::try_from(message.clone()).as_ref(), Ok(filter), "{name}");
                assert_eq!(FilterLoad::try_from(filter.clone()).as_ref(), Ok(message), "{name}");
            }
            (Ok(filter), Err(_)) => {
                // `BloomFlags` can't represent the reserved bits, which Core masks when matching
                // and keeps when encoding.
                by_flags += 1;
                assert!(filter.flags() > 2, "{name}: only bitcoin refuses it");
                assert_eq!(filter.encode(), payload, "{name}");
                let back = FilterLoad::try_from(filter.clone());
                assert_eq!(back, Err(PayloadError::ReservedFlags(filter.flags())), "{name}");
            }
            (Err(error), Ok(message)) => {
                // `FilterLoad` checks no limits.
                by_limits += 1;
                let (size, functions) = (message.filter.len(), message.hash_funcs);
                let expected = if size > 36_000 {
                    PayloadError::FilterTooLarge(size)
                } else {
                    PayloadError::TooManyHashFuncs(functions)
                };
                assert!(size > 36_000 || functions > 50, "{name}: only the library refuses it");
                assert_eq!(*error, expected, "{name}");
                assert_eq!(BloomFilter::try_from(message.clone()), Err(expected), "{name}");
            }
            (Err(_), Err(_)) => refused += 1,
        }
    }
    for count in [accepted, refused, by_limits, by_flags] {
        assert!(count > 200, "{accepted} {refused} {by_limits} {by_flags}");
    }
}

#[test]
fn filteradd_as_bitcoin_reads_it() {
    let mut rng = Rng::new(2);
    let (mut accepted, mut refused, mut by_limits) = (0, 0, 0);
    for case in 0..4_000 {
        let size = *rng.pick(&[0, 1, 20, 32, 36, 252, 253, 519, 520, 521, 522, 3_000]);
        let mut payload = compact_size(size);
        payload.extend(rng.bytes(size));
        damage(&mut rng, &mut payload);
        let name = format!("case {case}: {:.120}", hex::encode(&payload));

        let by_bitcoin = deserialize::<FilterAdd>(&payload);
        match (AddedData::decode(&payload), by_bitcoin) {
            (Ok(ours), Ok(message)) => {
                accepted += 1;
                assert_eq!(ours.as_bytes(), message.data, "{name}");
                assert_eq!(ours.encode(), payload, "{name}");
                assert_eq!(FilterAdd::from(ours.clone()), message, "{name}");
                assert_eq!(AddedData::try_from(message), Ok(ours), "{name}");
            }
            (Ok(_), Err(error)) => panic!("{name}: only bitcoin refuses it: {error}"),
            (Err(error), Ok(message)) => {
                by_limits += 1;
                assert!(message.data.len() > 520, "{name}: only the library refuses it: {error}");
                assert_eq!(error, PayloadError::DataTooLarge(message.data.len()), "{name}");
                assert_eq!(AddedData::try_from(message), Err(error), "{name}");
            }
            (Err(_), Err(_)) => refused += 1,
        }
    }
    for count in [accepted, refused, by_limits] {
        assert!(count > 200, "{accepted} {refused} {by_limits}");
    }
}

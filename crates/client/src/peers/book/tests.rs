//! Properties of the address book, with addresses that attackers choose.

use chainsieve::bitcoin::p2p::Magic;

use super::super::book::BookError;
use super::*;

/// A Unix time in seconds, in November 2023.
const UNIX: u64 = 1_700_000_000;

fn random() -> Random {
    Random::new([7; 16])
}

fn at(seconds: u64) -> Moment {
    Moment { elapsed: Duration::from_secs(seconds), unix: UNIX + seconds }
}

fn named(names: &[&str]) -> AddressBook {
    let mut book = AddressBook::new();
    for name in names {
        book.add_named(Target::parse(name, 1).unwrap());
    }
    book
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> Target {
    Target { host: Host::Ip([a, b, c, d].into()), port: 8_333 }
}

fn says(target: Target) -> Heard {
    Heard { target, services: ServiceFlags::NETWORK, seen: UNIX }
}

fn source(number: u8) -> Group {
    Group::of(&v4(80, number, 0, 1).host).unwrap()
}

fn wish() -> Wish {
    Wish { services: ServiceFlags::NETWORK, automatic: true, onion: false, anchors: MAX_ANCHORS }
}

fn place(book: &AddressBook, target: &Target) -> AddressId {
    book.places[target]
}

fn count(book: &AddressBook, fits: impl Fn(&Entry) -> bool) -> usize {
    book.entries.values().filter(|entry| fits(entry)).count()
}

#[test]
fn waits_grow_to_a_limit_and_start_over_after_a_good_connection() {
    let (mut book, mut random) = (named(&["a"]), random());
    let a = place(&book, &Target::parse("a", 1).unwrap());
    let mut now = 0;
    for failure in 0..20 {
        assert_eq!(book.due(at(now), wish(), &mut random), Some(a));
        let wait = book.ended(a, Duration::ZERO, true, at(now), &mut random).as_secs_f64();
        let base = 2_f64.powi(failure).min(300.0);
        assert!((base * 0.74..base * 1.26).contains(&wait), "{failure}: {wait}");
        assert_eq!(book.due(at(now), wish(), &mut random), None);
        now += 400;
    }
    let wait = book.ended(a, GOOD_AFTER, false, at(now), &mut random);
    assert!(wait < Duration::from_secs(2));
}

#[test]
fn who_failed_least_is_called_first_and_nobody_twice() {
    let (mut book, mut random) = (named(&["a", "b", "a"]), random());
    assert_eq!(book.len(), 2);
    let [a, b] = ["a", "b"].map(|name| place(&book, &Target::parse(name, 1).unwrap()));
    book.ended(a, Duration::ZERO, true, at(0), &mut random);
    assert_eq!(book.due(at(10), wish(), &mut random), Some(b));
    book.calls(b);
    assert_eq!(book.due(at(10), wish(), &mut random), Some(a));
    book.ban(a, UNIX + 10);
    assert_eq!(book.due(at(10), wish(), &mut random), None);
    // The ban lasts a day.
    assert_eq!(book.due(at(10 + BAN_TIME), wish(), &mut random), None);
    assert_eq!(book.due(at(11 + BAN_TIME), wish(), &mut random), Some(a));
}

#[test]
fn a_ban_is_of_the_host_but_for_peers_that_the_user_named() {
    let (mut book, mut random) = (named(&["127.0.0.1:1", "127.0.0.1:2"]), random());
    let [first, second] =
        ["127.0.0.1:1", "127.0.0.1:2"].map(|name| place(&book, &Target::parse(name, 1).unwrap()));
    book.ban(first, UNIX);
    assert_eq!(book.state(first, UNIX), AddressState::Banned);
    assert_eq!(book.state(second, UNIX), AddressState::Idle);

    let other_port = Target { port: 1, ..v4(1, 2, 3, 4) };
    for target in [v4(1, 2, 3, 4), other_port.clone()] {
        assert!(book.hear(says(target), source(0), UNIX, &mut random));
    }
    let heard = place(&book, &v4(1, 2, 3, 4));
    book.ban(heard, UNIX);
    assert_eq!(book.state(place(&book, &other_port), UNIX), AddressState::Banned);
    let third_port = Target { port: 2, ..v4(1, 2, 3, 4) };
    assert!(!book.hear(says(third_port.clone()), source(0), UNIX, &mut random));
    assert!(book.hear(says(third_port), source(0), UNIX + BAN_TIME + 1, &mut random));
}

#[test]
fn one_source_cannot_fill_the_book() {
    let (mut book, mut random) = (AddressBook::new(), random());
    let honest = v4(9, 9, 9, 9);
    assert!(book.hear(says(honest.clone()), source(0), UNIX, &mut random));
    for number in 0..20_000_u32 {
        let [_, a, b, c] = number.to_be_bytes();
        book.hear(says(v4(20 + a, b, c, 1)), source(1), UNIX, &mut random);
        book.hear(says(v4(40 + b % 100, c, 1, 1)), source(1), UNIX, &mut random);
    }
    assert_eq!(count(&book, |entry| entry.source == source(1)), MAX_PER_SOURCE);
    assert!(book.holds(&honest));
    // A source that sends a known address does not become the source of that address.
    book.hear(says(honest.clone()), source(1), UNIX, &mut random);
    assert_eq!(book.entries[&place(&book, &honest)].source, source(0));
}

#[test]
fn one_netgroup_cannot_fill_the_book_by_many_sources() {
    let (mut book, mut random) = (AddressBook::new(), random());
    for from in 0..=255 {
        for d in 0..100 {
            book.hear(says(v4(66, 66, from, d)), source(from), UNIX, &mut random);
        }
    }
    assert_eq!(book.len(), MAX_PER_GROUP);
}

#[test]
fn the_book_is_bounded_and_tried_and_named_addresses_are_not_pushed_out() {
    let (mut book, mut random) = (named(&["198.51.100.1", "node.example"]), random());
    let honest: Vec<_> = (0..200).map(|number| v4(5, number, 1, 1)).collect();
    for target in &honest {
        assert!(book.hear(says(target.clone()), source(0), UNIX, &mut random));
        book.succeeded(place(&book, target), ServiceFlags::NETWORK, None, UNIX);
    }
    // An attacker in 100 netgroups sends as many addresses as it likes.
    let new_before: Vec<_> = (0..20).map(|number| v4(6, number, 1, 1)).collect();
    for target in &new_before {
        assert!(book.hear(says(target.clone()), source(0), UNIX, &mut random));
    }
    for number in 0..6_000_u32 {
        let [_, a, b, c] = number.to_be_bytes();
        let from = source(100 + u8::try_from(number % 100).unwrap());
        book.hear(says(v4(20 + a, b, c, 1)), from, UNIX, &mut random);
        book.hear(says(v4(100 + b % 80, c, b, 2)), from, UNIX, &mut random);
        assert!(count(&book, Entry::is_automatic) <= MAX_ADDRESSES || number % 64 != 0);
    }
    assert_eq!(count(&book, Entry::is_automatic), MAX_ADDRESSES);
    assert_eq!(count(&book, |entry| entry.standing == Standing::Named), 2);
    assert!(honest.iter().all(|target| book.holds(target)));
    // The source of these twenty addresses has fewer addresses than each of the attacker's sources,
    // so none of the twenty is evicted.
    assert!(new_before.iter().all(|target| book.holds(target)));
    assert_eq!(book.entries.len(), book.places.len());
}

#[test]
fn tried_addresses_are_bounded_too() {
    let (mut book, mut random) = (AddressBook::new(), random());
    for number in 0..3_000_u32 {
        let [_, _, b, c] = number.to_be_bytes();
        let target = v4(20 + b, c, 1, 1);
        let from = source(u8::try_from(number / 250).unwrap());
        assert!(book.hear(says(target.clone()), from, UNIX, &mut random));
        let at = place(&book, &target);
        book.succeeded(at, ServiceFlags::NETWORK, None, UNIX + u64::from(number));
    }
    let tried = |entry: &Entry| entry.standing == Standing::Tried;
    assert_eq!(count(&book, tried), MAX_TRIED);
    let least = book.entries.values().filter(|entry| tried(entry)).map(|entry| entry.success).min();
    assert_eq!(least, Some(UNIX + 3_000 - MAX_TRIED as u64));
}

#[test]
fn terrible_addresses_make_room() {
    let (mut book, mut random) = (AddressBook::new(), random());
    let target = |number: usize| v4(20, u8::try_from(number).unwrap(), 1, 1);
    for number in 0..MAX_PER_SOURCE {
        assert!(book.hear(says(target(number)), source(0), UNIX, &mut random));
    }
    let next = v4(21, 0, 0, 1);
    assert!(!book.hear(says(next.clone()), source(0), UNIX, &mut random));
    let bad = place(&book, &target(77));
    for _ in 0..3 {
        book.ended(bad, Duration::ZERO, false, at(0), &mut random);
    }
    // These failures are attributed to our own network, so the address is not terrible.
    assert!(!book.hear(says(next.clone()), source(0), UNIX, &mut random));
    for _ in 0..3 {
        book.ended(bad, Duration::ZERO, true, at(0), &mut random);
    }
    assert!(book.hear(says(next.clone()), source(0), UNIX, &mut random));
    assert!(book.holds(&next) && !book.holds(&target(77)));
    // Addresses that no peer has seen for a month are terrible too.
    let later = UNIX + 31 * DAY;
    let fresh = Heard { seen: later, ..says(v4(22, 0, 0, 1)) };
    assert!(book.hear(fresh, source(0), later, &mut random));
    assert!(!book.hear(says(v4(23, 0, 0, 1)), source(1), later, &mut random));
}

#[test]
fn what_is_no_address_on_the_internet_is_not_taken_from_peers() {
    let (mut book, mut random) = (AddressBook::new(), random());
    let targets = [
        v4(127, 0, 0, 1),
        v4(10, 0, 0, 1),
        v4(0, 0, 0, 0),
        Target { port: 0, ..v4(8, 8, 8, 8) },
        Target::parse("[fd87:d87e:eb43::1]:8333", 1).unwrap(),
        Target::parse("internal.example", 1).unwrap(),
    ];
    for target in targets {
        assert!(!book.hear(says(target.clone()), source(0), UNIX, &mut random), "{target}");
    }
    assert!(book.is_empty());
}

/// Dials until no address is due or `most` addresses are dialled, and returns these addresses.
fn call_all(
    book: &mut AddressBook,
    at: Moment,
    most: usize,
    random: &mut Random,
) -> Vec<AddressId> {
    let mut called = Vec::new();
    while called.len() < most
        && let Some(place) = book.due(at, wish(), random)
    {
        book.calls(place);
        called.push(place);
    }
    called
}

#[test]
fn no_two_in_a_netgroup_while_others_are_available() {
    for seed in 0..50 {
        let (mut book, mut random) = (AddressBook::new(), Random::new([seed; 16]));
        // Many addresses of one netgroup, and five addresses in other netgroups.
        for d in 1..60 {
            book.hear(says(v4(66, 66, 1, d)), source(1), UNIX, &mut random);
        }
        for b in 0..5 {
            book.hear(says(v4(7, b, 1, 1)), source(2), UNIX, &mut random);
        }
        let called = call_all(&mut book, at(0), 6, &mut random);
        let groups: BTreeSet<_> = called.iter().map(|place| book.entries[place].group).collect();
        assert_eq!((called.len(), groups.len()), (6, 6));
        // When no unused netgroup remains, a second address of a used netgroup is dialled.
        let mut more = call_all(&mut book, at(0), 1, &mut random);
        // An address in its back-off is available until it has failed three times in a row.
        let other = *called
            .iter()
            .find(|place| book.entries[*place].group != book.entries[&more[0]].group)
            .unwrap();
        let again = more.pop().unwrap();
        book.ended(again, GOOD_AFTER, false, at(0), &mut random);
        for failures in 1..=3 {
            book.ended(other, Duration::ZERO, true, at(0), &mut random);
            let due = book.due(at(0), wish(), &mut random);
            assert_eq!(due.is_some(), failures == 3, "{failures}");
        }
    }
}

#[test]
fn named_peers_come_first_and_netgroups_do_not_bind_them() {
    let (mut book, mut random) =
        (named(&["66.66.0.1", "66.66.0.2", "127.0.0.1", "10.0.0.1"]), random());
    book.hear(says(v4(66, 66, 0, 3)), source(0), UNIX, &mut random);
    book.hear(says(v4(77, 77, 0, 3)), source(0), UNIX, &mut random);
    let called = call_all(&mut book, at(0), 5, &mut random);
    assert_eq!(called.len(), 5);
    assert!(called[..4].iter().all(|place| book.is_named(*place)));
    // The automatic address that shares a netgroup with a named peer is not dialled before the
    // address of an unused netgroup.
    assert_eq!(book.target(called[4]), Some(&v4(77, 77, 0, 3)));
    let only_named = Wish { automatic: false, ..wish() };
    assert_eq!(book.due(at(0), only_named, &mut random), None);
}

#[test]
fn tried_and_new_addresses_take_turns_and_services_count() {
    let mut random = random();
    let mut tried = 0;
    for _ in 0..400 {
        let mut book = AddressBook::new();
        for b in 0..100 {
            book.hear(says(v4(7, b, 1, 1)), source(1), UNIX, &mut random);
        }
        let only = v4(8, 0, 1, 1);
        book.hear(says(only.clone()), source(2), UNIX, &mut random);
        book.succeeded(place(&book, &only), ServiceFlags::NETWORK, None, UNIX);
        // The source claims that this peer lacks the needed services.
        let lacks = Heard { services: ServiceFlags::BLOOM, ..says(v4(9, 0, 1, 1)) };
        book.hear(lacks, source(2), UNIX, &mut random);
        let due = book.due(at(0), wish(), &mut random).unwrap();
        tried += usize::from(due == place(&book, &only));
        assert_ne!(book.target(due), Some(&v4(9, 0, 1, 1)));
    }
    // The count has a binomial distribution with n = 400 and p = 1/2. The bounds are six standard
    // deviations (60) away from the mean.
    assert!((140..=260).contains(&tried), "{tried}");
}

#[test]
fn onion_services_are_called_through_a_proxy_only() {
    let (mut book, mut random) = (AddressBook::new(), random());
    let onion = Target { host: Host::Onion([7; 32]), port: 8_333 };
    assert!(book.hear(says(onion.clone()), source(0), UNIX, &mut random));
    assert_eq!(book.due(at(0), wish(), &mut random), None);
    let with_proxy = Wish { onion: true, ..wish() };
    let due = book.due(at(0), with_proxy, &mut random).unwrap();
    assert_eq!(book.target(due), Some(&onion));
}

fn full() -> AddressBook {
    let (mut book, mut random) = (named(&["node.example:5", "127.0.0.1:6"]), random());
    for b in 0..5 {
        book.hear(says(v4(7, b, 1, 1)), source(b), UNIX, &mut random);
    }
    book.hear(says(Target::parse("[2a01::1]:7", 1).unwrap()), source(9), UNIX, &mut random);
    book.hear(says(Target { host: Host::Onion([7; 32]), port: 8 }), source(9), UNIX, &mut random);
    let services = ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS;
    book.succeeded(place(&book, &v4(7, 1, 1, 1)), services, None, UNIX + 5);
    book.ended(place(&book, &v4(7, 2, 1, 1)), Duration::ZERO, true, at(0), &mut random);
    book.set_anchors(&[place(&book, &v4(7, 1, 1, 1))]);
    for banned in [v4(7, 3, 1, 1), Target::parse("node.example:5", 1).unwrap()] {
        book.ban(place(&book, &banned), UNIX);
    }
    book
}

#[test]
fn a_book_is_kept() {
    let book = full();
    let bytes = book.encode(Magic::REGTEST);
    let kept = AddressBook::decode(&bytes, Magic::REGTEST).unwrap();
    assert_eq!(kept.bans, book.bans);
    let facts = |book: &AddressBook| -> Vec<_> {
        let automatic = book.entries.values().filter(|entry| entry.is_automatic());
        let fact = |entry: &Entry| {
            let Entry { target, standing, source, group, services, seen, .. } = entry.clone();
            let Entry { success, blamed, is_anchor, .. } = *entry;
            (target, standing, source, group, services, seen, success, blamed, is_anchor)
        };
        automatic.map(fact).collect()
    };
    assert_eq!(facts(&kept), facts(&book));
    assert_eq!(kept.len(), 7);
    assert_eq!(kept.encode(Magic::REGTEST), bytes);
    assert_eq!(kept.state(place(&kept, &v4(7, 3, 1, 1)), UNIX), AddressState::Banned);
    // Naming a peer again lifts its ban, and no other ban.
    let mut kept = kept;
    let node = Target::parse("node.example:5", 1).unwrap();
    kept.add_named(node.clone());
    assert_eq!(kept.state(place(&kept, &node), UNIX), AddressState::Idle);
    assert_eq!(kept.bans.until.len(), 1);
    let empty = AddressBook::new().encode(Magic::REGTEST);
    assert!(AddressBook::decode(&empty, Magic::REGTEST).unwrap().is_empty());
}

/// Returns a file with this body.
fn file(body: &[u8]) -> Vec<u8> {
    use chainsieve::bitcoin::hashes::{Hash as _, sha256d};

    let sum = sha256d::Hash::hash(body).to_byte_array();
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [b"CSAB\x01", &length[..], &sum[..4], body].concat()
}

/// Length in bytes of a file before its body.
const BEFORE: usize = 13;

#[test]
fn the_format_is_the_documented_one() {
    let (mut book, mut random) = (AddressBook::new(), random());
    book.hear(says(v4(7, 8, 9, 10)), source(3), UNIX, &mut random);
    book.bans.insert((Host::Name("a.b".into()), Some(258)), 1);
    let mut expected = b"\xfa\xbf\xb5\xda\x01\0\0\0".to_vec();
    expected.extend([1, 7, 8, 9, 10, 0x8d, 0x20, 0, 1, 80, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // Two hours are subtracted from the time that a source claims.
    expected.extend((1_700_000_000_u64 - 7_200).to_le_bytes());
    expected.extend([0; 10]);
    expected.extend(b"\x01\0\0\0\0\x03a.b\x01\x02\x01\x01\0\0\0\0\0\0\0");
    assert_eq!(book.encode(Magic::REGTEST), file(&expected));
}

#[test]
fn each_byte_damaged_and_each_length_is_found() {
    let whole = full().encode(Magic::REGTEST);
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << bit;
            let error = AddressBook::decode(&damaged, Magic::REGTEST).unwrap_err();
            let expected = match place {
                0..4 => BookError::NotABook,
                4 => BookError::Version { got: damaged[4] },
                _ => BookError::Checksum { bytes: whole.len() },
            };
            assert_eq!(error, expected, "{place}");
        }
    }
    for end in 0..whole.len() {
        assert!(AddressBook::decode(&whole[..end], Magic::REGTEST).is_err(), "{end}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(AddressBook::decode(&longer, Magic::REGTEST).is_err());
    let error = AddressBook::decode(&whole, Magic::BITCOIN).unwrap_err();
    assert_eq!(error.to_string(), "address book of magic fabfb5da, expected f9beb4d9");
}

/// An attacker who can write the file can also write a valid checksum. Decoding must not panic, and
/// must not return more addresses than the file contains.
#[test]
fn contents_that_nobody_writes() {
    let whole = full().encode(Magic::REGTEST);
    let body = &whole[BEFORE..];
    let sealed = |body: &[u8]| AddressBook::decode(&file(body), Magic::REGTEST);
    assert!(sealed(body).is_ok());
    for end in 0..body.len() {
        assert!(sealed(&body[..end]).is_err(), "{end}");
    }
    let mut many = body.to_vec();
    many[4..8].copy_from_slice(&[0xff; 4]);
    assert_eq!(sealed(&many).unwrap_err(), BookError::Malformed { offset: 4 });
    for place in 4..body.len() {
        for value in [0, 1, 2, 4, 0x7f, 0xff] {
            let mut changed = body.to_vec();
            changed[place] = value;
            // After the change, the file is invalid, or one of its addresses or numbers has
            // changed. If the file is valid, the parts of the book are consistent.
            if let Ok(book) = sealed(&changed) {
                assert_eq!(book.entries.len(), book.places.len());
                assert!(book.entries.len() <= 7);
            }
        }
    }
}

/// A book of tried addresses of different netgroups. The first two are anchors.
fn anchored(count: u8) -> (AddressBook, Vec<AddressId>) {
    let (mut book, mut random) = (AddressBook::new(), random());
    for b in 0..count {
        book.hear(says(v4(7, b, 1, 1)), source(b), UNIX, &mut random);
        book.succeeded(place(&book, &v4(7, b, 1, 1)), ServiceFlags::NETWORK, None, UNIX);
    }
    let places: Vec<_> = (0..count).map(|b| place(&book, &v4(7, b, 1, 1))).collect();
    book.set_anchors(&places[..2]);
    (AddressBook::decode(&book.encode(Magic::REGTEST), Magic::REGTEST).unwrap(), places)
}

/// Peers that served well in the last run come first in the next one, but never alone.
#[test]
fn anchors_are_called_first_and_somebody_else_beside_them() {
    for seed in 0..50 {
        let mut random = Random::new([seed; 16]);
        for most in [2, 3, 4] {
            let (mut book, anchors) = anchored(40);
            let wish = Wish { anchors: MAX_ANCHORS.min(most - 1), ..wish() };
            let mut called = Vec::new();
            for _ in 0..most {
                let place = book.due(at(0), wish, &mut random).unwrap();
                book.calls(place);
                called.push(place);
            }
            let own: Vec<_> = called.iter().map(|it| anchors[..2].contains(it)).collect();
            let expected: Vec<_> = (0..most).map(|number| number < wish.anchors).collect();
            assert_eq!(own, expected, "{most} peers");
        }
    }
    // If the book has nobody else, the anchors are better than nobody.
    let (mut book, _) = anchored(2);
    let wish = Wish { anchors: 0, ..wish() };
    for _ in 0..2 {
        let place = book.due(at(0), wish, &mut random()).unwrap();
        book.calls(place);
    }
    // Peers that the user named need no anchors beside them.
    let (book, _) = anchored(40);
    let named = Wish { automatic: false, ..wish };
    assert_eq!(book.due(at(0), named, &mut random()), None);
}

/// An anchor that could not be reached is an address like any other from then on, and a banned one
/// is no anchor any more.
#[test]
fn an_anchor_is_called_once() {
    let (mut book, places) = anchored(40);
    let mut random = random();
    let first = book.due(at(0), wish(), &mut random).unwrap();
    book.calls(first);
    book.ended(first, Duration::ZERO, true, at(0), &mut random);
    let second = book.due(at(600), wish(), &mut random).unwrap();
    assert!(second != first && places[..2].contains(&second));
    book.ban(second, UNIX);
    assert!(!book.entries[&second].is_anchor);
    let others = (0..30).map(|_| book.due(at(600), wish(), &mut random).unwrap());
    assert!(others.collect::<BTreeSet<_>>().iter().all(|place| !places[..2].contains(place)));
}

#[test]
fn tests_move_new_addresses_to_the_tried_ones_as_long_as_there_is_room() {
    let (mut book, mut random) = (AddressBook::new(), random());
    for b in 0..20 {
        book.hear(says(v4(7, b, 1, 1)), source(b), UNIX, &mut random);
    }
    let lacks = Heard { services: ServiceFlags::BLOOM, ..says(v4(8, 1, 1, 1)) };
    book.hear(lacks, source(1), UNIX, &mut random);
    let banned = place(&book, &v4(7, 3, 1, 1));
    book.ban(banned, UNIX);
    let mut tested = BTreeSet::new();
    while let Some(place) = book.untried(at(1), wish(), &mut random) {
        assert!(tested.insert(place) && place != banned);
        book.calls(place);
        if tested.len() % 2 == 0 {
            book.ended(place, Duration::ZERO, true, at(1), &mut random);
        } else {
            book.tested(place, ServiceFlags::NETWORK, UNIX + 1);
        }
    }
    // The address that lacks the services and the banned one are left out.
    assert_eq!(tested.len(), 19);
    assert_eq!(count(&book, |entry| entry.standing == Standing::Tried), 10);
    // A tested address is idle, and counts as not dialled.
    assert_eq!(count(&book, |entry| entry.busy), 0);
    assert_eq!(count(&book, |entry| entry.called), 10);
    // While the table of tried addresses is full, nothing is tested.
    let (mut book, mut random) = (AddressBook::new(), Random::new([8; 16]));
    for number in 0..=MAX_TRIED {
        let [.., a, b] = number.to_be_bytes();
        let target = v4(20 + a, b, 1, 1);
        book.hear(says(target.clone()), source(b), UNIX, &mut random);
        assert!(book.untried(at(1), wish(), &mut random).is_some() == (number < MAX_TRIED));
        if number < MAX_TRIED {
            book.succeeded(place(&book, &target), ServiceFlags::NETWORK, None, UNIX);
        }
    }
}

//! The transaction hashes of logs: proven by the transactions of their block, or a claim.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::BloomSoundness;
use chainsieve::eth::follow::{AnswerError, Config, Cursor, FollowNote, Question};
use chainsieve::eth::transactions::TransactionsError;
use serde_json::{Value, json};

use super::run::{
    NEXT_HAS_THEM, NO_TRANSACTIONS, REFUSED_TRANSACTIONS, Run, TRUE, WRONG_TRANSACTIONS, config,
};
use testkit::eth::world::World;

/// Two receipts with two logs each, of the queried contract or of another one.
const SEED: u8 = 2 | 2 << 2;
/// What a node claims.
const INVENTED: B256 = B256::repeat_byte(0xee);
/// No connection.
const SILENT: u8 = 6;

fn exact() -> Config {
    config(BloomSoundness::Exact)
}

fn world() -> World {
    let mut world = World::new();
    world.mine_all(&[SEED, 0, SEED, SEED]);
    world
}

/// Runs until all blocks are given out. `odd` selects the answers to each question for
/// transactions, and the last one stays. Returns the number of these questions too.
fn run(world: &World, config: Config, odd: &[u8]) -> (Run, usize) {
    let mut run = Run::new(config);
    run.claim = Some(INVENTED);
    let mut asked = 0;
    while run.reader.last != Some(world.head()) {
        let is_such = matches!(run.question(), Some(Question::Transactions(_)));
        let odd = if is_such { odd[asked.min(odd.len() - 1)] } else { TRUE };
        asked += usize::from(is_such);
        run.step(world, odd);
        assert!(matches!(run.ended, None | Some(Ok(()))), "{:?}", run.ended);
    }
    assert_eq!(run.reader.logs, world.logs_up_to(world.head(), 0));
    assert!(!run.hashes.is_empty());
    (run, asked)
}

fn unproven(run: &Run) -> Vec<(u64, usize, &AnswerError)> {
    let of = |note| match note {
        &FollowNote::UnprovenHashes { first, blocks, ref error } => {
            Some((first.number, blocks, error))
        }
        _ => None,
    };
    run.notes.iter().filter_map(of).collect()
}

#[test]
fn an_invented_hash_does_not_get_through() {
    let world = world();
    for odd in [TRUE, NEXT_HAS_THEM] {
        let (run, asked) = run(&world, exact(), &[odd]);
        // `Run` compares each proven hash with that of the world's transaction.
        assert!(run.hashes.iter().all(|(.., proven, claim)| proven.is_some() && claim.is_none()));
        assert_eq!((asked, unproven(&run)), (1, vec![]), "one question for all blocks");
    }
}

#[test]
fn without_transactions_the_hash_is_a_claim_and_the_logs_are_proven() {
    let world = world();
    // A provider that may lag or be unreachable is asked three times, any other one once.
    for (odd, times) in
        [(WRONG_TRANSACTIONS, 1), (REFUSED_TRANSACTIONS, 1), (NO_TRANSACTIONS, 3), (SILENT, 3)]
    {
        let (run, asked) = run(&world, exact(), &[odd]);
        assert!(run.hashes.iter().all(|of| (of.2, of.3) == (None, Some(INVENTED))), "{odd}");
        assert_eq!(asked, times, "{odd}");
        let [(first, blocks, error)] = unproven(&run)[..] else { panic!("{:?}", run.notes) };
        assert_eq!((first, blocks), (1, 3));
        match (odd, error) {
            (
                WRONG_TRANSACTIONS,
                AnswerError::Transactions(TransactionsError::Root { expected, .. }),
            ) => {
                let root = world.at(1).unwrap().header.view().transactions_root();
                assert_eq!(*expected, root);
            }
            (NO_TRANSACTIONS, AnswerError::Missing)
            | (REFUSED_TRANSACTIONS | SILENT, AnswerError::Failed(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn transactions_that_come_late_prove_the_hash() {
    let world = world();
    for odd in [NO_TRANSACTIONS, SILENT, 3] {
        let (run, asked) = run(&world, exact(), &[odd, odd, TRUE]);
        assert!(run.hashes.iter().all(|(.., proven, _)| proven.is_some()), "{odd}");
        assert_eq!((asked, unproven(&run)), (3, vec![]), "{odd}");
    }
}

/// With `once`, and with few tries, the follower does not end for want of transactions.
#[test]
fn no_follower_ends_for_want_of_transactions() {
    let world = world();
    for odd in [WRONG_TRANSACTIONS, NO_TRANSACTIONS, SILENT] {
        run(&world, Config { once: true, tries: 1, ..exact() }, &[odd]);
    }
}

#[test]
fn transactions_are_not_requested_if_nobody_wants_their_hashes() {
    let world = world();
    let (run, asked) = run(&world, Config { transaction_hashes: false, ..exact() }, &[TRUE]);
    assert_eq!(asked, 0);
    assert!(run.hashes.iter().all(|of| (of.2, of.3) == (None, Some(INVENTED))));
    // Nor where no log matches.
    let mut without = World::new();
    without.mine_all(&[0, 3, 0]);
    let mut run = Run::new(exact());
    while run.reader.last != Some(without.head()) {
        assert!(!matches!(run.question(), Some(Question::Transactions(_))));
        run.step(&without, TRUE);
    }
}

/// A cursor keeps proven and claimed hashes apart. In a cursor of version 1, all hashes are claims.
#[test]
fn a_cursor_never_turns_a_claim_into_a_proof() {
    let mut world = world();
    world.elsewhere.truncate(1); // nothing is final
    for (odd, version) in [(TRUE, 2), (NO_TRANSACTIONS, 2), (TRUE, 1)] {
        let (run, _) = run(&world, exact(), &[odd]);
        let text = run.follower.cursor().unwrap().to_json();
        let mut json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["version"], 2);
        json["version"] = json!(version);
        let is_proof = odd == TRUE && version == 2;
        let read = [
            Cursor::from_json(&json.to_string()).unwrap(),
            serde_json::from_value(json.clone()).unwrap(),
        ];
        for cursor in read {
            let again: Value = serde_json::from_str(&cursor.to_json()).unwrap();
            let logs = again["blocks"].as_array().unwrap().iter();
            let logs: Vec<_> = logs.flat_map(|block| block["logs"].as_array().unwrap()).collect();
            assert!(!logs.is_empty());
            for log in logs {
                assert_eq!(log["transactionHash"].is_string(), is_proof, "{log}");
                assert_eq!(log["claimedTransactionHash"].is_string(), !is_proof, "{log}");
            }
        }
    }
}

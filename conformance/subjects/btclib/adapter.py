"""btclib: BIP158's basic filter, BIP157's header, BIP37's merkle block, scripts.

`BasicBlockFilter` is keyed by a block hash and knows no parameters but the basic filter's, so cases with others are
skipped. It builds filters from blocks only: `gcs.build` is left out.
"""

from functools import partial

from btclib.block import Block
from btclib.block.block_filter import BASIC_FILTER_M, BASIC_FILTER_P, BasicBlockFilter
from btclib.block.partial_merkle_tree import PartialMerkleTree
from btclib.exceptions import BTClibValueError
from btclib.p2p.merkleblock import MerkleBlock
from btclib.script.script import ERROR_COMMAND, parse
from btclib.script.script_pub_key import type_and_payload

from protocol import Invalid, Skip, serve

unhex = bytes.fromhex
# Some cases have made blocks without proof of work, which the library's check of a block would refuse.
parse_block = partial(Block.parse, check_validity=False)


def gcs(key, p, m, encoded):
    if (p, m) != (BASIC_FILTER_P, BASIC_FILTER_M):
        raise Skip("only the parameters of the basic filter")
    # The key is the first half of a block hash in wire order; the library takes the hash in display order.
    return BasicBlockFilter.parse(unhex(encoded), (unhex(key) + bytes(16))[::-1])


def header(filter, previous_header_display):
    read = BasicBlockFilter.parse(unhex(filter), bytes(32))  # the block hash has no part in either answer
    return {"filter_hash_display": read.hash.hex(), "filter_header_display": read.header(previous_header_display).hex()}


def basic(block, prevout_scripts):
    made = BasicBlockFilter.from_block(parse_block(unhex(block)), [unhex(script) for script in prevout_scripts])
    return {"filter": made.serialize().hex()}


def merkleblock_build(block, matched):
    read = parse_block(unhex(block))
    txids = [tx.id for tx in read.transactions]
    tree = PartialMerkleTree.from_txids(txids, [index in matched for index in range(len(txids))])
    return {"merkleblock": MerkleBlock(read.header, tree, check_validity=False).serialize(check_validity=False).hex()}


def merkleblock(merkleblock):
    read = MerkleBlock.parse(unhex(merkleblock))
    if read.tree.merkle_root != read.header.merkle_root:  # the library's documentation leaves this line to its caller
        raise Invalid("the root differs from the header's")
    return {"matches": [[index, txid.hex()] for index, txid in read.tree.matches]}


def pushes(script):
    commands = parse(unhex(script))  # operations by name, pushes in hex, ERROR_COMMAND where a push is cut short
    found = [command.lower() for command in commands if not command.startswith(("OP_", "UNKNOWN_", ERROR_COMMAND))]
    return {"pushes": found, "well_formed": ERROR_COMMAND not in commands}


KINDS = {"p2pk": "pubkey", "p2ms": "multisig"}

serve({
    "gcs.decode": lambda **coded: {"count": gcs(**coded).element_count},
    "gcs.match": lambda item, **coded: {"match": gcs(**coded).match(unhex(item))},
    "gcs.match_any": lambda items, **coded: {"match": gcs(**coded).match_any([unhex(item) for item in items])},
    "bip157.header": header,
    "bip158.basic": basic,
    "bip158.check": lambda filter, **known: {"correct": basic(**known)["filter"] == filter},
    "bip37.merkleblock_build": merkleblock_build,
    "bip37.merkleblock": merkleblock,
    "script.pushes": pushes,
    "script.kind": lambda script: {"kind": KINDS.get(type_and_payload(unhex(script))[0], "other")},
}, refusals=(BTClibValueError,))  # BTClibValueError is how the library refuses bytes

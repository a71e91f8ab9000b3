"""trie and rlp: the receipts root by `HexaryTrie`, headers by rlp's sedes.

Neither package knows headers. The sedes below are those of py-evm's headers from Frontier to Prague; fields after them
are accepted whatever they hold. The hash is Keccak-256 of the bytes that rlp accepted.
"""

import rlp
from eth_hash.auto import keccak
from rlp.sedes import Binary, List, big_endian_int, binary, raw
from trie import HexaryTrie

from protocol import serve

unhex = bytes.fromhex
hash32 = Binary.fixed_length(32)
FRONTIER = [hash32, hash32, Binary.fixed_length(20), hash32, hash32, hash32, Binary.fixed_length(256), big_endian_int,
            big_endian_int, big_endian_int, big_endian_int, big_endian_int, binary, hash32, Binary.fixed_length(8)]
# Base fee, withdrawals root, blob gas used, excess blob gas, parent beacon block root, requests hash.
LATER = [big_endian_int, hash32, big_endian_int, big_endian_int, hash32, hash32]


def header_hash(header):
    later = len(rlp.decode(unhex(header))) - len(FRONTIER)
    read = rlp.decode(unhex(header), List(FRONTIER + LATER[: max(later, 0)] + [raw] * (later - len(LATER))))
    return {"hash": keccak(unhex(header)).hex(), "parent_hash": read[0].hex(), "number": read[8],
            "receipts_root": read[5].hex(), "logs_bloom": read[6].hex()}


def root(receipts):
    made = HexaryTrie({})
    for index, receipt in enumerate(receipts):
        made[rlp.encode(index)] = unhex(receipt)
    return {"root": made.root_hash.hex()}


# RLPException: rlp refuses bytes that are not canonical, or that do not fit the sedes.
serve({"header.hash": header_hash, "receipts.root": root}, refusals=(rlp.exceptions.RLPException,))

"""python-bitcoinlib: BIP37's filter (`bitcoin.bloom`) and the walk over a script (`bitcoin.core.script`).

The library leaves `IsRelevantAndUpdate` unimplemented and has no merkle block, GCS or Solver: those areas are left out.
"""

from bitcoin.bloom import CBloomFilter, MurmurHash3
from bitcoin.core.script import CScript, CScriptInvalidError
from bitcoin.core.serialize import SerializationError

from protocol import serve

unhex = bytes.fromhex


def murmur3(seed, data):
    return {"hash": MurmurHash3(seed, unhex(data))}


def sizing(elements, fpr, fpr_bits=None):
    made = CBloomFilter(elements, float(fpr), 0, CBloomFilter.UPDATE_NONE)
    return {"bytes": len(made.vData), "hash_funcs": made.nHashFuncs}


def filterload(payload):
    read = CBloomFilter.deserialize(unhex(payload))
    return {"data": read.vData.hex(), "hash_funcs": read.nHashFuncs, "tweak": read.nTweak, "flags": read.nFlags,
            "within_limits": read.IsWithinSizeConstraints()}


def pushes(script):
    found = []
    try:
        for _, data, _ in CScript(unhex(script)).raw_iter():
            if data:
                found.append(data.hex())
    except CScriptInvalidError:  # the library's way to say: malformed from here on
        return {"pushes": found, "well_formed": False}
    return {"pushes": found, "well_formed": True}


# SerializationError is what deserialize raises for short, oversized or trailing bytes.
serve({"bip37.murmur3": murmur3, "bip37.sizing": sizing, "bip37.filterload": filterload, "script.pushes": pushes},
      refusals=(SerializationError,))

"""pyfusefilter: binary fuse filters as xor_singleheader serialises them.

The library hashes a key itself: XXH64 with seed 0 of `str(key)`. Keys reach it as the decimal strings of the case.
"""

from pyfusefilter import Fuse8, Fuse16

from protocol import serve


def contains(kind):
    def area(bytes, keys):
        # `deserialize` does not check the bytes: it reads past the end of short ones.
        read = kind.deserialize(bytearray.fromhex(bytes))
        return {"contains": [key in read for key in keys]}

    return area


serve({"filter.fuse8": contains(Fuse8), "filter.fuse16": contains(Fuse16)})

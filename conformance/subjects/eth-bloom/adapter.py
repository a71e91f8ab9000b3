"""eth-bloom: logsBloom as an integer.

The library neither reads nor writes bytes: turning 256 bytes into an integer and back is its caller's part, done here.
"""

from eth_bloom import BloomFilter

from protocol import Skip, serve

unhex = bytes.fromhex


def build(logs):
    made = BloomFilter()
    for log in logs:
        made.add(unhex(log["address"]))
        made.extend(unhex(topic) for topic in log["topics"])
    return {"bloom": int(made).to_bytes(256, "big").hex()}


def test(bloom, kind, item):
    if len(bloom) != 512:
        raise Skip("the library takes an integer and does not see how many bytes it came from")
    return {"may_contain": unhex(item) in BloomFilter(int.from_bytes(unhex(bloom), "big"))}


serve({"logsbloom.build": build, "logsbloom.test": test})

"""Kafka's default partitioner for keyed records: murmur2 of the key bytes, 32 bit, seed 0x9747b28c.

Records that MM2 or Connect may also write (`mm2-offsets`) must go to the partition that its producer would
choose: otherwise two partitions hold competing values for one key.

Not aiokafka's: the wire formats import no Kafka client.
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash as Java's signed int, as in Kafka's own test vectors."""
    length = len(key)
    hashed = _SEED ^ length
    body = length & ~3
    for start in range(0, body, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if length & 3:
        hashed = (hashed ^ int.from_bytes(key[body:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's producers choose. Raises ValueError without partitions."""
    if partition_count < 1:
        raise ValueError(f"a topic has at least one partition, got {partition_count}")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count

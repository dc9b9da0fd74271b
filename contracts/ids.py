"""Identifiers: minted once, sortable by time, routable without a look-up table.

A job id is `job_` + 26 base32 characters (48 bits of milliseconds, 80 of chance) + the two-letter code of
its pool. Ids of events, artifacts and deliveries begin with the job's part, so each of them names its pool.
Nothing here reads a clock or a random source: both come in as arguments.
"""

import re
from typing import NewType

JobId = NewType("JobId", str)
TenantId = NewType("TenantId", str)
WorkerId = NewType("WorkerId", str)
EventId = NewType("EventId", str)
ArtifactId = NewType("ArtifactId", str)
DeliveryId = NewType("DeliveryId", str)
OfferId = NewType("OfferId", str)
EndpointId = NewType("EndpointId", str)

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32 in lower case: no i, l, o, u
RANDOM_BITS = 80
SKEW_MS = 3_600_000  # of the clocks of those that mint ids

_JOB = re.compile(r"job_[0-9a-hjkmnp-tv-z]{26}[a-z]{2}")
_OF_JOB = re.compile(r"(evt|art|dlv)_([0-9a-hjkmnp-tv-z]{26}[a-z]{2})_[0-9a-z_]{1,80}")
_EVENT = re.compile(r"evt_([0-9a-hjkmnp-tv-z]{26}[a-z]{2})_([1-9][0-9]{0,8})")
_DELIVERY = re.compile(r"dlv_([0-9a-hjkmnp-tv-z]{26}[a-z]{2})_([0-9]+)_([0-9a-z]{1,40})_([0-9]+)")
_ENDPOINT = re.compile(r"wh_[0-9a-hjkmnp-tv-z]{26}")
_TENANT = re.compile(r"t_[a-z0-9][a-z0-9_-]{0,47}")
_POOL = re.compile(r"[a-z][a-z0-9-]{0,31}")

SYSTEM_CODE = "00"  # in place of a pool's, for the log of the configuration: no pool has it


class BadId(ValueError):
    """The text is not an id of the expected kind."""


def encode_base32(value: int, length: int) -> str:
    """Write `value` in `length` base32 characters, most significant first.

    >>> encode_base32(33, 3)
    '011'
    """
    pairs = []
    for _ in range(0, length, 2):
        pairs.append(_PAIRS[value & 1023])
        value >>= 10
    pairs.reverse()
    return "".join(pairs)[-length:]


_PAIRS = tuple(first + second for first in ALPHABET for second in ALPHABET)


def mint_job_id(real_ms: int, random_bits: int, pool_code: str) -> JobId:
    """Mint the id of a job created at `real_ms`; `random_bits` is an integer below 2**80."""
    return JobId("job_" + encode_base32((real_ms << RANDOM_BITS) | random_bits, 26) + pool_code)


def minted_ms(job_id: str) -> int:
    """Return when a job's id was minted, by the clock of the host that did.

    >>> minted_ms(mint_job_id(1_764_457_200_000, 7, "aa"))
    1764457200000
    """
    value = 0
    for letter in job_id[4:30]:
        value = value * 32 + ALPHABET.index(letter)
    return value >> RANDOM_BITS


def parse_job_id(text: str) -> JobId:
    """Return the job id in `text`. Raises BadId for anything else."""
    if not _JOB.fullmatch(text):
        raise BadId(f"not a job id: {text[:40]!r}")
    return JobId(text)


def is_job_id(text: str) -> bool:
    """Whether `text` is the id of a job, or may be one."""
    return _JOB.fullmatch(text) is not None


def pool_code_of(any_id: str) -> str:
    """Return the pool code in a job, event, artifact or delivery id. Raises BadId."""
    return str(job_of(any_id))[-2:]


def job_of(any_id: str) -> JobId:
    """Return the job that a job, event, artifact or delivery id belongs to. Raises BadId."""
    if _JOB.fullmatch(any_id):
        return JobId(any_id)
    match = _OF_JOB.fullmatch(any_id)
    if match is None:
        raise BadId(f"not the id of a job, event, artifact or delivery: {any_id[:40]!r}")
    return JobId("job_" + match[2])


def event_id(job_id: str, sequence: int) -> EventId:
    """Name event number `sequence` of a job; the same name on every delivery and every replay."""
    return EventId(f"evt_{job_id[4:]}_{sequence}")


def event_named(text: str) -> tuple[JobId, int]:
    """Return the job of an event and its number in the job. Raises BadId, also for events that belong to no job."""
    match = _EVENT.fullmatch(text)
    if match is None:
        raise BadId(f"not the id of a job's event: {text[:40]!r}")
    return JobId("job_" + match[1]), int(match[2])


def entry_event_id(pool_code: str, epoch: int, position: str) -> EventId:
    """Name an event that belongs to no job by its place in the log."""
    return EventId(f"evt_{pool_code}_{epoch}_{position.replace('-', '_')}")


def artifact_id(job_id: str, fence: int, index: int) -> ArtifactId:
    """Name artifact number `index` of the attempt with this fence; two attempts never share a name."""
    return ArtifactId(f"art_{job_id[4:]}_{fence}_{index}")


def preview_id(job_id: str) -> ArtifactId:
    """Name the one preview of a job, which is replaced as it grows."""
    return ArtifactId(f"art_{job_id[4:]}_preview")


def log_id(job_id: str, fence: int) -> ArtifactId:
    """Name the log of the attempt with this fence."""
    return ArtifactId(f"art_{job_id[4:]}_{fence}_log")


def mint_upload_id(real_ms: int, random_bits: int, pool_code: str) -> ArtifactId:
    """Mint the id of a file that a caller sends: an artifact of no job, in the folder of a pool."""
    return ArtifactId(f"art_{mint_job_id(real_ms, random_bits, pool_code)[4:]}_upload")


def is_upload_id(text: str) -> bool:
    """Whether `text` is the id of a file that a caller sent, or may send."""
    return _OF_JOB.fullmatch(text) is not None and text.startswith("art_") and text.endswith("_upload")


def delivery_id(job_id: str, sequence: int, endpoint: str, generation: int) -> DeliveryId:
    """Name the delivery of one event to one endpoint: planning it twice makes one delivery."""
    return DeliveryId(f"dlv_{job_id[4:]}_{sequence}_{endpoint}_{generation}")


def entry_delivery_id(pool_code: str, position: tuple[int, int], log_number: int, endpoint: str) -> DeliveryId:
    """Name the delivery of an event that belongs to no job: as if its place in the log were a job.

    Args:
        position: milliseconds and number in the log.
        log_number: 0 for the log of the pool in which the delivery lies, 1 for the log of the configuration.
    """
    at_ms, number = position
    place = encode_base32((at_ms << RANDOM_BITS) | number, 26)
    return DeliveryId(f"dlv_{place}{pool_code}_{log_number}_{endpoint}_0")


def mint_endpoint_id(real_ms: int, random_bits: int) -> EndpointId:
    """Mint the id of a webhook endpoint. It names no pool: an endpoint hears of the jobs of all of them."""
    return EndpointId("wh_" + encode_base32((real_ms << RANDOM_BITS) | random_bits, 26))


def is_endpoint_id(text: str) -> bool:
    """Whether `text` is the id of an endpoint, or may be one."""
    return _ENDPOINT.fullmatch(text) is not None


def is_delivery_id(text: str) -> bool:
    """Whether `text` is the id of a delivery."""
    return _DELIVERY.fullmatch(text) is not None


def endpoint_of(delivery_id: str) -> str:
    """Return the name of the endpoint in a delivery id. Raises BadId.

    >>> endpoint_of("dlv_01jd0000000000000000000000aa_5_anon0123456789ab_0")
    'anon0123456789ab'
    """
    match = _DELIVERY.fullmatch(delivery_id)
    if match is None:
        raise BadId(f"not the id of a delivery: {delivery_id[:40]!r}")
    return match[3]


def event_of(delivery_id: str) -> tuple[JobId, int]:
    """Return the job and the sequence of the event in a delivery id. Raises BadId.

    >>> event_of("dlv_01jd0000000000000000000000aa_5_anon0123456789ab_0")
    ('job_01jd0000000000000000000000aa', 5)
    """
    match = _DELIVERY.fullmatch(delivery_id)
    if match is None:
        raise BadId(f"not the id of a delivery: {delivery_id[:40]!r}")
    return JobId("job_" + match[1]), int(match[2])


def mint_worker_id(real_ms: int, random_bits: int) -> WorkerId:
    """Mint a worker id; a supervisor takes a new one at every boot, so a dead one can never be resumed."""
    return WorkerId("wrk_" + encode_base32((real_ms << RANDOM_BITS) | random_bits, 26))


def mint_token(random_bits: int) -> str:
    """Return 16 base32 characters from 80 random bits: leader tokens, offers, write ids."""
    return encode_base32(random_bits, 16)


def is_tenant_id(text: str) -> bool:
    """Whether `text` may name a tenant: nothing that could break a key, a pattern or a hash tag."""
    return _TENANT.fullmatch(text) is not None


def is_pool_name(text: str) -> bool:
    """Whether `text` may name a pool."""
    return _POOL.fullmatch(text) is not None


def pool_code(ordinal: int) -> str:
    """Return the code of the `ordinal`-th pool ever created: aa, ab, ... zz.

    >>> pool_code(0), pool_code(27)
    ('aa', 'bb')
    """
    if not 0 <= ordinal < 676:
        raise BadId("there are codes for 676 pools")
    return chr(97 + ordinal // 26) + chr(97 + ordinal % 26)

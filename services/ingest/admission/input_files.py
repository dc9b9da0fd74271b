"""The files a request names, judged before anything is queued: URLs as text, ids by what is stored.

Promises: nothing is looked up or connected to for a URL; an id is good if its file is stored whole, belongs to the
caller's tenant and has not expired at this moment. Whether it is still so when the job runs, the worker finds out.
"""

import asyncio
from collections.abc import Mapping

from contracts.file_inputs import ARTIFACTS, MAX_FILES, urls
from contracts.model_spec import ModelSpec
from contracts.webhook_target import AllowPrivate, explain, judge_url
from services.ingest.edge.problems import Fault, Problem
from services.ingest.files import Files

FIND_S = 5.0


def judge(model: ModelSpec, fields: Mapping[str, object], allow_private: AllowPrivate) -> tuple[Fault, ...]:
    """Judge what can be judged without looking anywhere: URLs, the shape of ids, how many there are."""
    asked = list(urls(model.schema.files, fields))
    faults = [
        Fault(pointer, verdict, explain(verdict))
        for pointer, url, _ in asked
        if (verdict := judge_url(url, allow_private)) is not None
    ]
    ids = fields.get(ARTIFACTS, [])
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        faults.append(Fault(f"/input/{ARTIFACTS}", "wrong_type", "must be a list of ids of stored files"))
    elif len(ids) + len(asked) > MAX_FILES:
        faults.append(Fault("/input", "too_long", f"must name at most {MAX_FILES} files"))
    return tuple(faults)


async def find(
    files: Files, tenant_id: str, fields: Mapping[str, object], now_ms: int
) -> tuple[dict[str, str], tuple[Fault, ...]]:
    """Return the pools in whose folders the files lie, by id, and what is wrong with the ids. Raises Problem."""
    ids = fields.get(ARTIFACTS, [])
    assert isinstance(ids, list)
    try:
        async with asyncio.timeout(FIND_S):
            found = await asyncio.gather(*(files.find(str(each), tenant_id) for each in ids))
    except TimeoutError:
        raise Problem("files_unavailable") from None
    pools: dict[str, str] = {}
    faults: list[Fault] = []
    for index, one in enumerate(found):
        pointer = f"/input/{ARTIFACTS}/{index}"
        if one is None or one.is_preview:
            faults.append(Fault(pointer, "artifact_not_found", "is no stored file of yours"))
        elif one.record.expires_at_ms <= now_ms:
            faults.append(Fault(pointer, "artifact_expired", "has expired"))
        else:
            pools[one.record.id] = one.pool
    return pools, tuple(faults)

"""The newest preview of a job, by its link or with its bytes."""

import orjson

from contracts.positions import Position
from contracts.wire import Entry
from services.ingest.edge.problems import Problem
from services.ingest.files import Files
from services.ingest.live.messages import Message
from services.ingest.live.query import Previews
from services.ingest.views.jobs import Place

MOST_BYTES = 512 << 10  # of one that is sent with its bytes; a larger one is sent by its link


async def read_preview(entry: Entry, wanted: Previews, files: Files, tenant_id: str, place: Place) -> Message:
    """Return what is told of a preview: it has no id, so it moves nobody; no bytes when there are none any more."""
    data = entry.raw_data()
    facts: dict[str, object] = {
        "jobId": entry.subject,
        "step": data.get("step"),
        "totalSteps": data.get("totalSteps"),
        "mime": data.get("mime"),
        "url": f"{place.public_url}{data.get('path', '')}",
        "sequence": entry.sequence,
        "position": str(Position(place.code, place.epoch, entry.position)),
    }
    content = await _content(files, str(data.get("artifactId")), tenant_id) if wanted == "inline" else None
    return Message("preview", orjson.dumps(facts), content=content)


async def _content(files: Files, artifact_id: str, tenant_id: str) -> bytes | None:
    try:
        found = await files.find(artifact_id, tenant_id)
        content = None if found is None else await files.open(found)
        if content is None or content.size_bytes > MOST_BYTES:
            return None
        parts = []
        try:
            while part := await files.ask(content.read):
                parts.append(part)
        finally:
            content.close()
        return b"".join(parts)
    except Problem:  # the store of files is away: the link says where it is
        return None

"""What a job reserves of a device follows from its own parameters, by what an audit has measured of its model."""

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from contracts import events as ev
from contracts.profiles import Machine, ModelProfiles, Point, make_profile, reserved
from contracts.store import keys
from contracts.wire import decode
from tests.ingest.api import Api, running_api, settings_for
from tests.store.play import Play

MIB = 1 << 20
SIZED = """
[models.sized]
entry = "draw.py"
inputs = "sized.json"
vram = { grid = { width = [64, 128, 256], batch = [1, 2] } }
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "width": {"type": "integer", "minimum": 1, "default": 64},
        "batch": {"type": "integer", "minimum": 1, "default": 1},
    },
}
GRID = [(width, batch) for width in (64, 128, 256) for batch in (1, 2)]
HERE = Machine(kind="cuda", name="NVIDIA L4", driver="550")


def peak(width: int, batch: int = 1) -> int:
    return (100 + width * batch) * MIB


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service with a model that was measured: 100 MiB and one more for each unit of width x batch."""
    settings = settings_for(store_url, tmp_path)
    folder = settings.pipelines.parent
    (folder / "pipelines.toml").write_text((folder / "pipelines.toml").read_text() + SIZED)
    (folder / "sized.json").write_bytes(orjson.dumps(SCHEMA))
    points = [Point(inputs={"width": w, "batch": b}, peak_bytes=peak(w, b)) for w, b in GRID]
    made = make_profile(HERE, ["batch", "width"], points, 24 << 30)
    (folder / "profiles").mkdir()
    file = ModelProfiles(model="sized@1", profiles=(made,)).to_json()
    (folder / "profiles" / "sized@1.json").write_text(file)
    async with running_api(settings) as running:
        yield running


async def created(api: Api, **inputs: int) -> ev.JobCreated:
    """Submit a job with these inputs and return what the log says of it."""
    job_id = await api.job(model="sized", input=inputs)
    position, fields = (await api.store.client.xrevrange(keys.log("default"), count=1))[0]
    entry = decode(position.decode(), fields)
    event = entry.event()
    assert entry.subject == job_id
    assert isinstance(event, ev.JobCreated)
    return event


async def worker(api: Api, play: Play, size_bytes: int, unlike: list[str] | None = None) -> None:
    fits = {"sized@1": [{"device": HERE.device, "unlike": unlike or []}]}
    said = {"devices": orjson.dumps([{"bytesTotal": size_bytes}]), "profiles": orjson.dumps(fits)}
    await api.store.client.hset(keys.worker("default", play.worker), mapping=said)
    await api.service.context.capacity.look("default")


async def test_parameters_decide_what_is_reserved_with_headroom(api: Api) -> None:
    small, large = await created(api), await created(api, width=256, batch=2)

    assert small.vram_bytes == pytest.approx(reserved(peak(64)), rel=1e-4)
    assert large.vram_bytes == pytest.approx(reserved(peak(256, 2)), rel=1e-4)
    assert (small.alone, large.alone) == (None, None)


async def test_parameters_that_multiply_the_memory_by_ten_are_refused_where_no_device_has_it(
    api: Api, play: Play
) -> None:
    """Field case 68: what counts is the work inside the request, not that it is one request."""
    await worker(api, play, 700 * MIB)

    fits = await api.submit(model="sized", input={"width": 256, "batch": 2})
    refused = await api.submit(model="sized", input={"width": 256, "batch": 24})

    assert fits.status == 201
    assert (refused.status, refused.code) == (422, "unschedulable")
    assert "needs 6244 MiB; the largest device of pool default has 700 MiB" in refused.body["errors"][0]["message"]


async def test_and_routed_to_a_device_for_itself_where_one_may_have_it(api: Api, play: Play) -> None:
    """Field case 68: beyond what was measured nobody shares the device with it, and it has these bytes at least."""
    await worker(api, play, 24 << 30)

    found = await created(api, width=256, batch=24)

    assert found.alone is True
    assert found.vram_bytes >= peak(256, 24)


async def test_headroom_and_padding_reserve_the_whole_device_at_most(api: Api, play: Play) -> None:
    whole_bytes = peak(256, 2) + MIB
    await worker(api, play, whole_bytes, unlike=["driver 560 here, 550 in the audit"])

    assert (await created(api, width=256, batch=2)).vram_bytes == whole_bytes


async def test_where_the_worker_is_unlike_the_audit_a_quarter_is_added(api: Api, play: Play) -> None:
    await worker(api, play, 24 << 30)
    alike = (await created(api)).vram_bytes
    await worker(api, play, 24 << 30, unlike=["driver 560 here, 550 in the audit"])

    assert (await created(api)).vram_bytes == -(-alike * 5 // 4)


async def test_a_model_that_was_not_measured_reserves_what_its_author_says(api: Api) -> None:
    await api.job(model="draw")
    _, fields = (await api.store.client.xrevrange(keys.log("default"), count=1))[0]
    event = decode("1-0", fields).event()

    assert isinstance(event, ev.JobCreated)
    assert event.vram_bytes == MIB

"""Files and logs through whole processes: what is uploaded is read, what is made is used, what is printed is seen."""

import asyncio
import hashlib
import struct

import orjson
import pytest

from tests.harness import Stack

pytestmark = pytest.mark.asyncio(loop_scope="session")

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 4, 4) + bytes(5_000)


async def test_an_upload_is_read_by_a_job_and_its_result_by_the_next(stack: Stack) -> None:
    announced = {"fileName": "a.png", "contentType": "image/png", "bytes": len(PNG)}
    made = await stack.request("POST", "/v1/uploads", announced)
    assert made.status == 201, made
    ticket = made.json
    async with stack.http.put(ticket["url"], data=PNG, headers=ticket["headers"]) as sent:
        assert sent.status == 204
    done = await stack.request("POST", ticket["urls"]["complete"])
    assert done.status == 200, done
    assert done.json["id"] == ticket["id"]

    first = await stack.submit("files", {"inputArtifacts": [ticket["id"]]})
    await stack.wait_for_ends(first)
    result = (await stack.request("GET", f"/v1/jobs/{first}/result")).json
    second = await stack.submit("files", {"inputArtifacts": [result["artifacts"][0]["id"]]})
    await stack.wait_for_ends(second)
    following = (await stack.request("GET", f"/v1/jobs/{second}/result")).json

    assert result["result"]["files"] == [{"sha256": hashlib.sha256(PNG).hexdigest(), "ending": ".png"}]
    assert following["result"]["files"][0]["sha256"] == result["artifacts"][0]["sha256"]
    stranger = await stack.make_tenant()
    assert (await stack.post_job("files", {"inputArtifacts": [ticket["id"]]}, key=stranger)).status == 422
    await stack.audit()


async def test_what_a_running_job_prints_is_followed_to_its_end(stack: Stack) -> None:
    job = await stack.submit("talks", {"steps": 8, "step_s": 0.2})
    url = f"{stack.ready['url']}/v1/jobs/{job}/logs"
    headers = {"Authorization": f"Bearer {stack.key}", "Accept": "text/event-stream"}
    text, pieces, has_ended_before = "", 0, True
    async with asyncio.timeout(60), stack.http.get(url, headers=headers) as followed:
        async for line in followed.content:
            if line.startswith(b"data: "):
                data = orjson.loads(line[6:])
                text += data.get("text", "")
                pieces += 1
                has_ended_before = has_ended_before and stack.log.has_ended(job)
    listed = (await stack.request("GET", f"/v1/jobs/{job}/logs")).json

    expected = ["loaded", *(f"step {step}: ü" for step in range(8))]
    assert text.splitlines() == expected
    assert data == {"reason": "terminal"}
    assert not has_ended_before  # some of it was here while the job ran
    assert pieces > 2
    assert [line["text"] for line in listed["data"]] == expected
    await stack.audit()

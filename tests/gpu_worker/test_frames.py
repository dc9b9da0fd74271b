"""The child's language: both sides speak the same bytes, and nothing malformed gets through."""

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gpu_worker.process import decoding, encoding, frames
from services.gpu_worker.process.child_process import MAIN

GOLDEN = json.loads((Path(__file__).parent / "golden_frames.json").read_text())
AUTHOR = """
import numpy
def load(device, prepared):
    return [device.kind, device.index, device.bytes]
def run(model, inputs, job):
    job.progress(1, 4, phase="denoising")
    job.milestone("latents.decoded", step=4)
    job.preview(b"x", step=2)
    job.artifact("image.png", b"x", kind="image", width=512, height=512)
    if inputs.get("prompt") == "429":
        raise job.RateLimited("pinecone", retry_after_s=3)
    return {"model": model, "inputs": inputs}
def run_batch(model, inputs, jobs):
    if inputs[0]["prompt"] == "oom":
        raise MemoryError
    return [{"seed": 7}, {"seed": 8}]
"""


def wire(frame: dict[str, Any]) -> bytes:
    body = json.dumps(frame).encode()
    return frames.HEADER.pack(len(body)) + body


@pytest.mark.parametrize("name", GOLDEN["from_child"])
def test_the_parent_understands_each_golden_frame(name: str) -> None:
    frame = decoding.decode(json.dumps(GOLDEN["from_child"][name]).encode())
    named = {"artifact": "ArtifactFile", "failed_in_batch": "Failed", "failed_lost": "Failed"}.get(name) or "".join(
        part.title()
        for part in name.removesuffix("_out_of_memory").removesuffix("_gpu").removesuffix("_prepared").split("_")
    )
    assert type(frame).__name__ == named
    for field in frame.__slots__:
        assert getattr(frame, field) == GOLDEN["from_child"][name].get(field, {} if field == "data" else None)


def test_the_parent_writes_the_golden_frames() -> None:
    golden = GOLDEN["to_child"]
    run = golden["run"]
    written = {
        "load": encoding.encode_load("sim", 1, 268435456, 65536),
        "run": encoding.encode_run("job_1", 2, run["inputs"], run["dir"]),
        "run_batch": encoding.encode_run_batch(
            [(one["job"], one["fence"], one["inputs"], one["dir"]) for one in golden["run_batch"]["members"]]
        ),
        "cancel": encoding.encode_cancel("job_1", 2),
        "load_gpu": encoding.encode_load("cuda", 0, 8 << 30, 65536, 512 << 20),
        "slice": encoding.encode_slice(4 << 30, 300 << 20),
        "close": encoding.encode_close(),
    }
    for name, bytes_ in written.items():
        assert json.loads(bytes_[frames.HEADER.size :]) == golden[name]


def test_the_child_answers_golden_frames_with_golden_shapes(tmp_path: Path) -> None:
    author = tmp_path / "author.py"
    author.write_text(AUTHOR)
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    lifeline, _ours_end = socket.socketpair()
    cancels, _our_cancels = socket.socketpair()
    fds = (theirs.fileno(), cancels.fileno(), lifeline.fileno())
    command = [sys.executable, "-I", str(MAIN), *map(str, fds), str(author)]
    with subprocess.Popen(command, pass_fds=fds, start_new_session=True, env={}) as child:
        theirs.close()
        reader = ours.makefile("rb")

        def heard() -> dict[str, Any]:
            while True:
                frame = json.loads(reader.read(frames.HEADER.unpack(reader.read(frames.HEADER.size))[0]))
                if frame["ev"] != "heartbeat":
                    return dict(frame)

        golden = GOLDEN["to_child"]
        got = {"prepared": heard()}
        ours.sendall(wire(golden["load"]))
        got["ready"] = heard()
        ours.sendall(wire({**golden["run"], "dir": str(tmp_path)}))
        got |= {name: heard() for name in ("progress", "milestone", "preview", "artifact", "done")}
        limited = {**golden["run"], "dir": str(tmp_path), "inputs": {"prompt": "429"}, "fence": 3}
        ours.sendall(wire(limited))
        got["failed"] = [heard() for _ in range(5)][-1]
        first, second = ({**one, "dir": str(tmp_path)} for one in golden["run_batch"]["members"])
        ours.sendall(wire({**golden["run_batch"], "members": [first, second]}))
        assert [(end["ev"], end["job"], end["result"]) for end in (heard(), heard())] == [
            ("done", "job_1", {"seed": 7}),
            ("done", "job_2", {"seed": 8}),
        ]
        got["batch_over"] = heard()
        ours.sendall(wire({**golden["run_batch"], "members": [{**first, "inputs": {"prompt": "oom"}}, second]}))
        got["failed_in_batch"] = heard()
        assert [heard()["ev"], heard()["ev"]] == ["failed", "batch_over"]
        ours.sendall(wire(golden["close"]))
        assert child.wait(60) == 0

    for name, frame in got.items():
        assert frame.keys() == GOLDEN["from_child"][name].keys(), name
        assert frame["ev"] == GOLDEN["from_child"][name]["ev"]
    assert got["done"]["result"] == {"model": ["sim", 1, 268435456], "inputs": golden["run"]["inputs"]}


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(GOLDEN["from_child"])), max_size=8), st.data())
def test_frames_survive_any_cutting(names: list[str], data: st.DataObject) -> None:
    stream = b"".join(wire(GOLDEN["from_child"][name]) for name in names)
    decoder, got, at = decoding.Decoder(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        got += decoder.feed(stream[at : at + size])
        at += size
    assert got == [decoding.decode(json.dumps(GOLDEN["from_child"][name]).encode()) for name in names]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"ev":"nonsense"}',
        b'{"ev":"done","job":1,"fence":2}',
        b'{"ev":"done","job":"j","fence":true}',
        b'{"ev":"done","job":"j","fence":1,"result":[1]}',
        b'{"ev":"progress","job":"j","fence":1,"done":"x","total":null}',
        b'{"ev":"preview","job":"j","fence":1,"name":"p","file":"../../etc/passwd","step":1}',
        b'{"ev":"artifact","job":"j","fence":1,"name":"p","file":"/1","kind":"k","variant":"v"}',
        b'{"ev":"load_failed","code":"out_of_memory","message":"m","memory":{"requested":-1}}',
        b'{"ev":"load_failed","code":"out_of_memory","message":"m","memory":{"prompt":1}}',
        b'{"ev":"load_failed","code":"out_of_memory","message":"m","memory":{"free":1.5}}',
    ],
)
def test_what_is_no_frame_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(frames.ProtocolError):
        decoding.decode(body)


def test_a_huge_frame_is_refused_before_it_is_read() -> None:
    decoder = decoding.Decoder()
    with pytest.raises(frames.ProtocolError):
        list(decoder.feed(frames.HEADER.pack(1 << 31)))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_protocol_error(noise: bytes) -> None:
    with contextlib.suppress(frames.ProtocolError):
        decoding.decode(noise)

"""Makes files: one from bytes, one from a path, one preview."""

from pathlib import Path


def run(model, inputs, job):
    Path("frame.txt").write_text("first")
    job.preview("frame.txt", step=1)
    job.artifact("notes.txt", "frame.txt", kind="text")
    Path("frame.txt").write_text("second")
    job.artifact("image.png", b"\x89PNG" + bytes(1000), kind="image", variant="original", width=512, height=512)
    job.artifact("small.png", b"\x89PNG", kind="image", variant="thumbnail")
    return {"files": 3}

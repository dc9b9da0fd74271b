"""Reads the files it is given: paths stand where the caller put URLs and ids."""

import hashlib
import os


def run(model, inputs, job):
    paths = [path for name in ("image", "mask") if (path := inputs.get(name))]
    paths += inputs.get("frames", []) + inputs.get("inputArtifacts", [])
    seen = []
    for path in paths:
        with open(path, "r+b") as file:  # changing what was given changes nothing but a copy
            seen.append({"sha256": hashlib.sha256(file.read()).hexdigest(), "ending": os.path.splitext(path)[1]})
            file.write(b"scribble")
    job.artifact("copy.txt", b"made of " + str(len(seen)).encode())
    return {"files": seen, "inside": all(path.startswith(job.dir) for path in paths)}

"""What becomes of a job, whatever computes the networks: `run` and `run_batch` of both pipelines.

Promises: the same inputs in a batch of the same size give the same bytes on the same CPU and library versions.
"""

import io
import json
from pathlib import Path

import numpy as np
from model import LATENT_SHAPE
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from vocabulary import read_prompt
from weights import WEIGHTS_SHA256

THUMBNAIL_PIXELS = 128
PREVIEW_PIXELS = 256
PREVIEWS_PER_JOB = 8

_PROPERTIES = json.loads((Path(__file__).parent / "inputs.schema.json").read_text())["properties"]
DEFAULTS = {name: schema["default"] for name, schema in _PROPERTIES.items() if "default" in schema}


def run(model, inputs, job):
    """Draw one picture; `job.progress` reports each step and is where a cancel ends the run."""
    return run_batch(model, [inputs], [job])[0]


def run_batch(model, inputs, jobs):
    """Draw one picture for each job in one pass; a job that is cancelled hears no more, the others go on."""
    asked = [{"seed": 0, **DEFAULTS, **one} for one in inputs]
    steps, size = int(asked[0]["steps"]), int(asked[0]["size"])  # the same for all: they are of one bucket

    report(jobs, 0, steps, "encoding_prompt")
    read = [read_prompt(one["prompt"]) for one in asked]
    noise = [np.random.default_rng(int(one["seed"])).standard_normal(LATENT_SHAPE, np.float32) for one in asked]
    guidances = [float(one["guidance"]) for one in asked]

    preview_every = max(1, steps // PREVIEWS_PER_JOB)
    for step, latents in model.denoise([words for words, _ in read], guidances, np.stack(noise), steps):
        report(jobs, step, steps, "denoising")
        if step % preview_every == 0 and step < steps:
            for job, pixels in zip(jobs, model.decode(latents), strict=True):
                job.preview(webp(pixels, min(size, PREVIEW_PIXELS)), step)

    report(jobs, steps, steps, "decoding")
    pictures = model.decode(latents)
    for job in jobs:
        job.milestone("latents.decoded")

    report(jobs, steps, steps, "postprocessing")
    return [finished(*each) for each in zip(jobs, asked, read, pictures, strict=True)]


def report(jobs, step, steps, phase):
    """Tell each job how far it is."""
    for job in jobs:
        job.progress(step, steps, phase=phase)


def finished(job, asked, read, pixels):
    """Hand over the picture and a thumbnail; returns the result."""
    words, unknown_words = read
    whole = {name: int(asked[name]) for name in ("seed", "steps", "size")}
    made_with = {**whole, "guidance": float(asked["guidance"]), "words": list(words)}
    provenance = {**made_with, "weights": WEIGHTS_SHA256}
    size = made_with["size"]
    for name, variant, pixel_count in (("thumbnail", "thumbnail", THUMBNAIL_PIXELS), ("picture", "original", size)):
        data = png(pixels, pixel_count, provenance)
        job.artifact(f"{name}.png", data, kind="image", variant=variant, width=pixel_count, height=pixel_count)
    return {**made_with, "unknownWords": list(unknown_words)}


def enlarged(pixels, size):
    """Return the picture at size x size pixels."""
    return Image.fromarray(pixels).resize((size, size), Image.Resampling.LANCZOS)


def png(pixels, size, provenance):
    """Return a PNG that tells how it was made; no time stamp, so that a repeat has the same bytes."""
    text = PngInfo()
    text.add_text("Software", "headrace scenes")
    text.add_text("provenance", json.dumps(provenance, sort_keys=True))
    buffer = io.BytesIO()
    enlarged(pixels, size).save(buffer, "PNG", pnginfo=text)
    return buffer.getvalue()


def webp(pixels, size):
    """Return a small and quick file for a look at the work so far."""
    buffer = io.BytesIO()
    enlarged(pixels, size).save(buffer, "WEBP", quality=60, method=0)
    return buffer.getvalue()

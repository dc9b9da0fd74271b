"""Text to picture with any pipeline of the diffusers library, from a folder or from the hub's cache.

`env` of the model in pipelines.toml says which: HEADRACE_DIFFUSERS_MODEL, a folder or a name of the hub; _REVISION and
_VARIANT narrow it down. Nothing is downloaded unless HF_HUB_OFFLINE is "0", and only safetensors are read: weights that
are pickles can run code. Half precision on a GPU, single on a CPU.

Promises: progress for each step; a cancel is noticed there and ends the loop through the pipeline's own interrupt, so
that it stays usable; what the model cannot do is refused and not ignored. Does not promise the same bytes on another
device, and none of what a pipeline does beyond text to picture.
"""

import inspect
import io
import json
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the library is imported

try:
    import diffusers
    import torch
    from latent_preview import fitted_preview
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: pip install 'headrace[diffusers]', or name an `interpreter` that has it in pipelines.toml"
    ) from error

MODEL = "HEADRACE_DIFFUSERS_MODEL"
THUMBNAIL_PIXELS = 128
PREVIEW_PIXELS = 256
PREVIEWS_PER_JOB = 8

_PROPERTIES = json.loads((Path(__file__).parent / "inputs.schema.json").read_text())["properties"]
DEFAULTS = {name: schema["default"] for name, schema in _PROPERTIES.items() if "default" in schema}

# Our name of an input: the library's.
PARAMETERS = {
    "prompt": "prompt",
    "negativePrompt": "negative_prompt",
    "steps": "num_inference_steps",
    "guidance": "guidance_scale",
    "width": "width",
    "height": "height",
    "numOutputs": "num_images_per_prompt",
}


class ContentRejected(RuntimeError):
    """The model's own safety checker withheld every picture."""

    code = "content_rejected"


def prepare():
    """Read the pipeline into host memory; needs no device."""
    name = os.environ.get(MODEL, "")
    if not name:
        raise RuntimeError(f"{MODEL} is not set: give a folder or a name of the hub in `env` of the model")
    is_offline = os.environ["HF_HUB_OFFLINE"] != "0"
    try:
        pipe = diffusers.DiffusionPipeline.from_pretrained(
            name,
            revision=os.environ.get(f"{MODEL}_REVISION"),
            variant=os.environ.get(f"{MODEL}_VARIANT"),
            torch_dtype=torch.float16 if torch.cuda.is_available() else torch.float32,
            use_safetensors=True,
            local_files_only=is_offline,
        )
    except OSError as error:  # the library's text names neither
        hint = 'fetch it first, or set HF_HUB_OFFLINE = "0" in `env` of the model' if is_offline else "see the log"
        raise RuntimeError(f"{MODEL} {name!r} cannot be read from a folder or the hub's cache: {hint}") from error
    pipe.set_progress_bar_config(disable=True)
    return pipe


def load(device, prepared):
    """Copy it to the device, and learn what its latents look like."""
    place = device.torch_device
    if place == "cpu" and prepared.dtype == torch.float16:  # a CPU slot beside a GPU; CPUs are slow at halves
        prepared.to(torch.float32)
    prepared.to(place)
    return prepared, fitted_preview(getattr(prepared, "vae", None))


def run(model, inputs, job):
    """Draw the pictures of one job."""
    pipe, preview = model
    asked = {"seed": 0, **DEFAULTS, **inputs}
    job.progress(0, int(asked["steps"]), phase="encoding_prompt")
    seeds = [int(asked["seed"]) + number for number in range(int(asked["numOutputs"]))]
    noise = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]  # the same on every device
    pipe._interrupt = False  # some pipelines leave it as the last job left it
    output = pipe(**arguments(pipe, asked, job), generator=noise, callback_on_step_end=Steps(job, preview))
    job.progress(int(asked["steps"]), int(asked["steps"]), phase="postprocessing")  # where a cancel ends the run
    flagged = getattr(output, "nsfw_content_detected", None) or [False] * len(seeds)
    kept = [(image, seed) for image, seed, bad in zip(output.images, seeds, flagged) if not bad]  # noqa: B905
    if not kept:
        raise ContentRejected("content_rejected: the model's safety checker withheld every picture")
    for number, (image, seed) in enumerate(kept, 1):
        hand_over(job, image, "picture" if len(seeds) == 1 else f"picture-{number}", made_with(asked, seed))
    width, height = kept[0][0].size
    return {
        **made_with(asked, seeds[0]), "width": width, "height": height,
        "seeds": [seed for _, seed in kept], "withheld": len(seeds) - len(kept),
    }  # fmt: skip


class Steps:
    """Hears the end of each step: tells how far it is, shows the work so far, and carries a cancel into the loop."""

    def __init__(self, job, preview):
        self._job, self._preview = job, preview

    def __call__(self, pipe, index, timestep, tensors):
        if self._job.cancelled and hasattr(pipe, "interrupt"):
            pipe._interrupt = True  # the library's own way: the steps that are left do nothing
            return tensors
        step, steps = index + 1, pipe.num_timesteps
        self._job.progress(step, steps, phase="denoising" if step < steps else "decoding")  # raises if cancelled
        if self._preview and step < steps and step % max(1, steps // PREVIEWS_PER_JOB) == 0:
            for picture in self._preview(tensors["latents"][:1]):
                self._job.preview(webp(picture), step)
        return tensors


def arguments(pipe, asked, job):
    """Return what the library's pipeline is called with; refuses an input that it has no parameter for."""
    known = inspect.signature(type(pipe).__call__).parameters
    for name, theirs in PARAMETERS.items():
        if name in asked and theirs not in known and asked[name] != DEFAULTS.get(name):
            raise job.Reject(f"input/{name}: {type(pipe).__name__} cannot do that")
    whole = {"steps", "width", "height", "numOutputs"}  # 24.0 is an integer to JSON Schema
    return {
        theirs: int(asked[name]) if name in whole else asked[name]
        for name, theirs in PARAMETERS.items()
        if name in asked and theirs in known
    }


def made_with(asked, seed):
    """Return what the result and each picture tell about how it was made."""
    told = {name: asked[name] for name in ("steps", "guidance", "negativePrompt") if name in asked}
    model = {"model": os.environ[MODEL].rstrip("/").rpartition("/")[2], "diffusers": diffusers.__version__}
    return {**told, **model, "torch": torch.__version__, "seed": seed}


def hand_over(job, image, name, provenance):
    """Hand over a picture and its thumbnail."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS), Image.Resampling.LANCZOS)
    for made, variant, ending in ((small, "thumbnail", "-thumbnail"), (image, "original", "")):
        width, height = made.size
        data = png(made, provenance)
        job.artifact(f"{name}{ending}.png", data, kind="image", variant=variant, width=width, height=height)


def png(image, provenance):
    """Return a PNG that tells how it was made; no time stamp, so that a repeat has the same bytes."""
    text = PngInfo()
    text.add_text("provenance", json.dumps(provenance, sort_keys=True))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=text)
    return buffer.getvalue()


def webp(image):
    """Return a small and quick file for a look at the work so far."""
    factor = PREVIEW_PIXELS / max(image.size)
    sides = [max(1, round(side * factor)) for side in image.size]
    buffer = io.BytesIO()
    image.resize(sides, Image.Resampling.BICUBIC).save(buffer, "WEBP", quality=60, method=0)
    return buffer.getvalue()

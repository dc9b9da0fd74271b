"""Calls an outside service at `url`; its 429 hands the job back, as the name of the limit that `resource` gives."""

import urllib.error
import urllib.request


def run(model, inputs, job):
    try:
        with urllib.request.urlopen(inputs["url"], timeout=10) as reply:
            return {"status": reply.status}
    except urllib.error.HTTPError as refusal:
        if refusal.code != 429:
            raise
        told = refusal.headers.get("Retry-After")
        raise job.RateLimited(inputs.get("resource", "provider"), told and float(told)) from None

"""Writes 1 MB log lines and 5,000 progress reports a second until it is stopped."""

import time


def run(model, inputs, job):
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < inputs.get("seconds", 600):
        job.progress(count, 10**9)
        if count % 500 == 0:
            print("x" * 1_000_000, flush=True)
        count += 1
        time.sleep(max(0.0, begun + count / 5000 - time.monotonic()))
    return {"count": count}

"""Reports progress that no event can hold, and as many milestones as it likes."""


def run(model, inputs, job):
    job.progress(1, 2, phase="p" * 5_000_000, blob="x" * 5_000_000)
    job.progress(float("nan"), -1, phase="")
    for _ in range(1000):
        job.milestone("m" * 1000, blob="x" * 50_000)
    job.progress(10**400, 2, odd={1, 2})
    return {}

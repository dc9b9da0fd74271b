"""Claims as a milestone what only its supervisor may say, then fails."""


def run(model, inputs, job):
    for name in ("job.completed", "job.started", "@1", "", "o:*"):
        job.milestone(name, attempt=1, artifacts=[])
    raise ValueError("not completed at all")

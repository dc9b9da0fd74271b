"""Fails in the way that `how` names."""


def load(device, prepared):
    return None


def run(model, inputs, job):
    how = inputs.get("how", "error")
    if how == "reject":
        raise job.Reject("this prompt cannot be drawn")
    if how == "rate":
        raise job.RateLimited("pinecone", retry_after_s=3)
    if how == "retry":
        raise job.Retry(after_s=1)
    raise ValueError("the pipeline is broken")

"""Does nothing, so that whatever a job costs is ours."""


def run(model, inputs, job):
    return None

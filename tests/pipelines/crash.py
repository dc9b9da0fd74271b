"""Takes its process with it: `how` is a signal name or an exit status."""

import os
import signal


def run(model, inputs, job):
    how = inputs.get("how", 139)
    if isinstance(how, int):
        os._exit(how)
    os.kill(os.getpid(), getattr(signal, how))
    signal.pause()

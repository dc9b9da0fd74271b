"""`headrace`, again and again, without its imports: forks itself for each run that is asked for.

Reads a line of JSON for each run: `words`, `cwd`, `env`, and `out`, `err`, the files to write to. Answers with the exit
code. Each run is a process of its own, as for a person, only that its modules are loaded already.
"""

import json
import os
import sys
import traceback
from importlib import import_module

from headrace import cli
from headrace.webhooks import group


def main() -> None:
    for place in [*cli.COMMANDS.values(), *group.COMMANDS.values()]:
        import_module(place.partition(":")[0])
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            run(asked)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(asked: dict) -> None:
    """End this process as `headrace` would."""
    code = 1
    try:
        for descriptor, path in ((0, os.devnull), (1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv = ["headrace", *asked["words"]]
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


main()

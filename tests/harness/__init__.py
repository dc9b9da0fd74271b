"""A whole Headrace as tests see it: real processes, real store, and a verdict taken from the log.

`Stack` is one `headrace up` with test settings, `Fragile` one whose store may be hurt; `LogTail` waits for facts in the
log; `audit` judges it; `Proxy` loses and holds what passes between processes; `processes` finds what is still alive.
"""

from tests.harness.audit import Verdict
from tests.harness.fragile import Fragile
from tests.harness.proxy import Proxy
from tests.harness.stack import Answer, Stack
from tests.harness.tail import LogTail, eventually

__all__ = ["Answer", "Fragile", "LogTail", "Proxy", "Stack", "Verdict", "eventually"]

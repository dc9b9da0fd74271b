"""The function library: one `.lua` per verb, loaded when absent and never replaced.

Function names carry the hash of the whole source (`hr_admit_1a2b3c4d`), so that an old and a new version of the
product can run side by side on one store during a rolling upgrade.
"""

import hashlib
from functools import cache
from importlib import resources

SHARED = ("_prelude", "_cursor", "_deliveries", "_order", "_circuit")
# In this order: `release_and_start` uses what `emit` and `start` define; `claim_key` and `take_upload`, what
# `take_submit` does; `redeliver`, what `revive` does.
VERBS = (
    "open", "admit", "refuse", "append", "lead", "resign", "turn", "register", "heartbeat", "announce", "start",
    "emit", "release_and_start", "decline", "history", "tenants", "page", "plan", "due_endpoints", "claim",
    "hold_claims", "settle_delivery", "hold_endpoint", "revive", "redeliver", "page_deliveries", "endpoint",
    "mend_endpoint", "expire_deliveries", "warn_endpoint", "forget_deliveries", "survey", "leave", "take_submit",
    "take_upload", "claim_key", "end_claim", "configure", "keep_secret", "keep_part", "keep_snapshot", "grant",
    "shut", "ask", "answer", "note", "live",
    "ask_task", "claim_task", "keep_task", "end_task", "page_letters", "drop_group",
    "lead_archive", "resign_archive", "seal", "trim", "forget", "checkpoint", "fork",
    "rebuild", "recount", "hold_key", "restore_body", "requeue", "relist",
    "tally",
    "lead_mirror", "move_mirror", "note_planned",
    "erase_forgotten", "erase_deliveries", "erase_live", "erase_claim", "erase_again", "end_erasures", "use_files",
    "leave_file",
)  # fmt: skip

_REGISTER = """
local function register(verb, callback, flags)
  redis.register_function{function_name = 'hr_' .. verb .. '_HASH', callback = callback, flags = flags}
end
"""


@cache
def _body() -> str:
    folder = resources.files("contracts.store") / "lua"
    parts = [(folder / f"{name}.lua").read_text() for name in (*SHARED, *VERBS)]
    # each verb is a block of its own, but for those whose functions another verb calls
    return "\n".join([_REGISTER, *parts])


@cache
def source_hash() -> str:
    """Return the 8 hex digits that name this version of the library."""
    return hashlib.sha256(_body().encode()).hexdigest()[:8]


@cache
def source() -> str:
    """Return the library as FUNCTION LOAD takes it."""
    return f"#!lua name=headrace_{source_hash()}\n" + _body().replace("_HASH", "_" + source_hash())


@cache
def function_name(verb: str) -> str:
    """Return the name under which this version's verb is registered."""
    if verb not in VERBS:
        raise KeyError(verb)
    return f"hr_{verb}_{source_hash()}"

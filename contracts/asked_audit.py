"""An audit that was asked for through the API, and what came of it. Pure."""

from dataclasses import asdict, dataclass, fields

import orjson

from contracts.errors import Corrupt


@dataclass(frozen=True, slots=True)
class AskedAudit:
    """What is asked of `headrace audit verify`. `owner`: the tenant whose key asked, '' for an operator.

    `document`: what that program printed, as text; `error`: why it printed nothing.
    """

    id: str
    owner: str = ""
    by: str = ""
    reason: str = ""
    repairs: bool = False
    pool: str = ""
    job_id: str = ""
    tenant_id: str = ""
    after: str = ""
    until: str = ""
    asked_ms: int = 0
    done_ms: int = 0
    document: str = ""
    error: str = ""

    def to_json(self) -> bytes:
        """Return what is stored."""
        return orjson.dumps(asdict(self))

    def words(self) -> list[str]:
        """Return what to call the program with. No text of it is taken for an option."""
        named = {"pool": self.pool, "job": self.job_id, "tenant": self.tenant_id, "after": self.after,
                 "until": self.until, "reason": self.reason, "by": self.by}  # fmt: skip
        chosen = [f"--{name}={text}" for name, text in named.items() if text]
        return ["audit", "verify", "--output=json", "--background", *(["--repair"] if self.repairs else []), *chosen]


def read_asked(name: str, text: str) -> AskedAudit:
    """Read what is stored. Raises Corrupt."""
    try:
        raw = orjson.loads(text)
        return AskedAudit(**{field.name: raw[field.name] for field in fields(AskedAudit) if field.name in raw})
    except (ValueError, TypeError, KeyError) as error:
        raise Corrupt(name, f"the audit cannot be read: {type(error).__name__}") from error

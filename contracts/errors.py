"""The error tree, sorted by what the catcher must do. Expected outcomes are values (`store.Word`); these are surprises.

Each error has a stable snake_case `code`; `contracts/README.md` lists them.
"""


class HeadraceError(Exception):
    """Root of all errors raised on purpose."""

    code = "internal"


class Rejected(HeadraceError):
    """The caller asked for something that cannot be done: tell the caller, change nothing."""

    def __init__(self, code: str, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s


class Unavailable(HeadraceError):
    """Something we depend on is away or busy: try again by schedule."""

    code = "unavailable"

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(f"{what} is unavailable" + (f": {detail}" if detail else ""))
        self.what = what


class StoreUnavailable(Unavailable):
    """The store did not answer, or refused to serve for the moment."""

    code = "log_unavailable"

    def __init__(self, detail: str = "") -> None:
        super().__init__("the store", detail)


class Unconfirmed(StoreUnavailable):
    """The call was sent and no reply came: nobody knows whether it was carried out."""


class StoreFull(Unavailable):
    """The store is at its memory limit: new work is refused, running work still settles."""

    code = "storage_full"

    def __init__(self, detail: str = "") -> None:
        super().__init__("memory in the store", detail)


class Corrupt(HeadraceError):
    """An entry cannot be read or contradicts the state: set it aside and go on."""

    code = "corrupt"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class ConfigError(HeadraceError):
    """The configuration is wrong; the message lists every fault. Processes exit with 2."""

    code = "bad_configuration"

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults

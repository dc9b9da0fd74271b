"""Settings from the environment: `HEADRACE_<GROUP>__<NAME>`. The same names for every process.

All faults are reported together, unknown `HEADRACE_*` variables among them; a secret may come from a file named by
`<NAME>_FILE`. Only `__main__` files read the environment; everything else is given a `Settings`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from contracts.errors import ConfigError
from contracts.outbound.terms import Route
from contracts.policy import SchedulingPolicy
from contracts.retry import WEBHOOK_DELAYS_S, parse_delays
from contracts.setting_values import (
    AdminKey,
    Bytes,
    Count,
    Endpoint,
    KafkaTopic,
    Nameservers,
    PoolName,
    Ports,
    Positive,
    ProxyUrl,
    PublicUrl,
    Seconds,
    read_topic,
)
from contracts.webhook_target import PUBLIC_PORTS, AllowPrivate

PREFIX = "HEADRACE_"


class Group(BaseModel):
    """Base of the groups: unknown names are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RedisSettings(Group):
    """The store. Empty: `headrace up` starts one of its own."""

    url: str = ""


class StoreSettings(Group):
    """The embedded store, and how durable an answer is."""

    server: str | None = None  # a binary that is used instead of looking for one
    durability: Literal["process", "fsync"] = "process"


class IngestSettings(Group):
    """The HTTP door."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    body_bytes: Bytes = 1 << 20
    body_timeout_s: Positive = 10.0
    import_bytes: Bytes = 1 << 30  # of an export that an operator sends
    connections: Count = 2_000
    tenant_followers: Annotated[int, Field(ge=1, le=500)] = 50  # logs that a tenant may follow at one process
    key_streams: Count = 100  # live streams that one key may have at one process
    store_timeout_s: Positive = 1.5  # a POST is answered within this also while the store is away


class AdmissionSettings(Group):
    """How much may wait; a tenant's own limits come first."""

    tenant_jobs: Count = 10_000
    tenant_bytes: Bytes = 1 << 30
    pool_jobs: Count = 1_000_000
    pool_bytes: Bytes = 8 << 30
    memory_ratio: Annotated[float, Field(gt=0, le=1)] = 0.8  # of maxmemory, above which nothing new is admitted


class WorkerSettings(Group):
    """The supervisor and its children."""

    devices: str = ""  # "cpu*2", "sim:24GiB*4"; empty: what is found, else one CPU device
    slots: Annotated[int, Field(ge=1, le=64)] = 1  # jobs that may share one device
    reserve_mib: Count = 1_024  # of a GPU, left to its driver and to other programs
    max_models: Annotated[int, Field(ge=1, le=16)] = 4  # resident on one device
    heartbeat_s: Positive = 1.0
    lease_s: Positive = 10.0
    drain_s: Seconds = 30.0
    cancel_grace_s: Seconds = 1.0
    term_grace_s: Seconds = 0.5
    scratch_bytes: Bytes = 1 << 30
    result_bytes: Bytes = 65_536
    pool: PoolName = "default"

    @model_validator(mode="after")
    def _beats_within_its_lease(self) -> Self:
        if self.lease_s < 2 * self.heartbeat_s:  # one late beat, and a healthy worker would be given up
            raise ValueError("LEASE_S must be at least twice HEARTBEAT_S; raise the one or lower the other")
        return self


class SchedulerSettings(Group):
    """The leader of a pool."""

    lease_s: Positive = 3.0
    tick_s: Positive = 0.5
    policy: SchedulingPolicy = SchedulingPolicy()


class RetrySettings(Group):
    """Back-off between attempts."""

    base_s: Positive = 5.0
    cap_s: Positive = 600.0
    rate_limited_s: Positive = 3_600.0  # a job whose provider says "not now" for so long fails


class WebhookSettings(Group):
    """Sending webhooks."""

    timeout_s: Positive = 15.0
    schedule: tuple[float, ...] = tuple(WEBHOOK_DELAYS_S)
    allow_private: AllowPrivate = "none"
    ports: Ports = PUBLIC_PORTS  # that a URL may name; where allow_private opens more, there any
    nameservers: Nameservers = ()  # who is asked for names of receivers and of input files; none: the system
    proxy: ProxyUrl = None  # through which webhooks and input files leave
    answer_bytes: Annotated[int, Field(ge=0, le=65_536)] = 1_024  # of an answer that are kept to be shown; 0: nothing
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 256  # attempts under way in one process
    endpoint_concurrency: Annotated[int, Field(ge=1, le=1_000)] = 5  # to one endpoint, from all processes together
    disable_after_s: Positive = 432_000.0  # an endpoint that only failed for so long is disabled
    circuit_s: Positive = (
        30.0  # an endpoint that only fails is left alone for so long, doubled each time up to 20 times
    )
    tenant_endpoints: Count = 20  # endpoints that one tenant may have

    @property
    def route(self) -> Route:
        """By which way webhooks leave, and input files too."""
        return Route(self.nameservers, self.proxy)

    @field_validator("schedule", mode="before")
    @classmethod
    def _schedule(cls, value: object) -> object:
        return parse_delays(value) if isinstance(value, str) else value


class NotifierSettings(Group):
    """Where events are read that webhooks are planned from."""

    source: KafkaTopic = ""  # kafka://host:port/topic, filled by a mirror of the logs; empty: the logs themselves

    def topic(self) -> tuple[str, str] | None:
        """Return the servers and the topic of Kafka; None for the logs themselves."""
        return read_topic(self.source)


class KafkaSettings(Group):
    """The cluster that logs are mirrored to, and that a notifier may read: where, and how it is reached."""

    mirror: KafkaTopic = ""  # kafka://host:port/topic to copy all logs to; empty: no mirror runs
    idempotent: bool = True  # the broker drops what it was sent twice; off for brokers that cannot
    tls: bool = False
    ca_file: str = ""  # whose certificates are trusted; empty: those the system trusts
    client_cert_file: str = ""  # who we are, for brokers that ask by certificate
    client_key_file: str = ""
    sasl: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    user: str = ""
    password: SecretStr | None = None

    def topic(self) -> tuple[str, str] | None:
        """Return the servers and the topic of the mirror; None without one."""
        return read_topic(self.mirror)

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if len({bool(self.sasl), bool(self.user), self.password is not None}) > 1:
            raise ValueError("SASL, USER and PASSWORD (or PASSWORD_FILE) are set together, or none of them")
        if self.sasl == "PLAIN" and not self.tls:  # the password would be read by whoever is on the way
            raise ValueError("SASL PLAIN sends the password as it is: set TLS, or use SCRAM-SHA-512")
        if not self.tls and (self.ca_file or self.client_cert_file or self.client_key_file):
            raise ValueError("the files of certificates are of no use without TLS=true")
        if self.client_key_file and not self.client_cert_file:
            raise ValueError("CLIENT_KEY_FILE belongs to a CLIENT_CERT_FILE")
        return self


class RetentionSettings(Group):
    """How long things are kept after they ended; 0 means as soon as the conditions hold."""

    completed_s: Seconds = 3_600.0
    failed_s: Seconds = 86_400.0
    idempotency_s: Positive = 86_400.0
    artifacts_s: Positive = 604_800.0
    usage_s: Positive = 34_560_000.0  # what tenants used, by day: outlives the log and its archive
    live_s: Seconds = 0.0  # events stay in the store for so long also when they are archived


class ObjectSettings(Group):
    """A directory, or `s3://bucket/prefix` with credentials from `AWS_*`."""

    url: str = ""  # empty: a folder of the data directory
    endpoint: Endpoint = ""  # of an S3-compatible store; empty: that of AWS
    region: str = ""
    timeout_s: Positive = 30.0  # without a byte for so long, a request to the store has failed


class ArtifactSettings(ObjectSettings):
    """Where stored files lie; by default in `artifacts` below the data directory."""


class ArchiveSettings(ObjectSettings):
    """Where the event log is archived, by default in `archive` below the data directory, and how often."""

    seal_s: Positive = 60.0  # an entry is sealed at latest after so long,
    seal_entries: Annotated[int, Field(ge=1, le=100_000)] = 10_000  # or when so many wait for it,
    settle_s: Seconds = 10.0  # but never before: a failover may still take it back
    checkpoint_s: Positive = 600.0  # between two signed checkpoints, while entries are sealed


class InputSettings(Group):
    """Files that a job is given: by URL, or by the id of a stored file."""

    file_bytes: Bytes = 256 << 20
    picture_pixels: Annotated[int, Field(ge=1, le=1 << 40)] = 64_000_000  # by the header; nothing is decoded
    timeout_s: Positive = 30.0  # for all files of one job
    allow_private: AllowPrivate = "none"
    upload_s: Annotated[Positive, Field(le=604_800)] = 3_600.0  # from announcing a file to completing it
    tenant_mib_per_day: Annotated[int, Field(ge=1, le=100_000_000)] = 51_200  # that a tenant may announce


class AdminSettings(Group):
    """The operator's key."""

    key: AdminKey | None = None


class ClientSettings(Group):
    """The command line as a client."""

    url: str = ""
    key: SecretStr | None = None


class LogSettings(Group):
    """The process's own log and the limit of the event log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    max_bytes: Bytes = 4 << 30


class Settings(Group):
    """All settings of all processes."""

    redis: RedisSettings = RedisSettings()
    store: StoreSettings = StoreSettings()
    ingest: IngestSettings = IngestSettings()
    admission: AdmissionSettings = AdmissionSettings()
    worker: WorkerSettings = WorkerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    retry: RetrySettings = RetrySettings()
    webhook: WebhookSettings = WebhookSettings()
    notifier: NotifierSettings = NotifierSettings()
    kafka: KafkaSettings = KafkaSettings()
    retention: RetentionSettings = RetentionSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    archive: ArchiveSettings = ArchiveSettings()
    inputs: InputSettings = InputSettings()
    admin: AdminSettings = AdminSettings()
    client: ClientSettings = ClientSettings()
    log: LogSettings = LogSettings()
    data_dir: Path = Path(".headrace")
    pipelines: Path = Path("pipelines/pipelines.toml")
    public_url: PublicUrl = ""


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings. Raises ConfigError with every fault, each with the variable's name and what to do."""
    faults: list[str] = []
    tree: dict[str, object] = {}
    for name, value in sorted(environ.items()):
        if name.startswith(PREFIX):
            _place(tree, name, value, faults)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        faults += [_fault(dict(detail)) for detail in error.errors(include_url=False, include_input=False)]
    if faults:
        raise ConfigError(faults)
    return settings


def _place(tree: dict[str, object], name: str, value: str, faults: list[str]) -> None:
    path = name[len(PREFIX) :].lower().split("__")
    if path[-1] in ("key_file", "password_file"):
        path[-1], value = path[-1].removesuffix("_file"), _read_secret(name, value, faults)
    node = tree
    for part in path[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            faults.append(f"{name}: {part} is a value, not a group")
            return
        node = child
    node[path[-1]] = value


def _read_secret(name: str, path: str, faults: list[str]) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        faults.append(f"{name}: {path} cannot be read ({error.strerror}); name a file that holds the secret")
        return ""


def _fault(detail: dict[str, object]) -> str:
    loc = detail["loc"]
    path = "__".join(str(part) for part in loc) if isinstance(loc, tuple) else ""
    name = PREFIX + path.upper()
    if detail["type"] == "extra_forbidden":
        return f"{name}: there is no such setting; see contracts/settings.py for the names"
    if detail["type"] == "model_type":
        return f"{name}: is a group; set one of its names, {name}__..."
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{name.removesuffix('__[KEY]')}: {message}"

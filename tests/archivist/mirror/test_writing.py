"""How records get into a topic: in order whatever fails, over TLS, as somebody; and what a broker says no to."""

import asyncio
import contextlib
import datetime
import ipaddress
import itertools
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from contracts.errors import ConfigError, Unavailable
from contracts.kafka.connection import Cluster, Topic, topic_at
from contracts.kafka.reader import TopicReader
from contracts.kafka.writer import Outgoing, TopicWriter
from contracts.settings import load_settings
from tests.archivist.mirror.rig import new_topic, topic_of
from tests.notifier.certificates import server_tls
from tests.notifier.kafka import Broker
from tests.notifier.test_kafka_source import closed_port, door

PASSWORD = "correct horse battery"
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36  # keys of Kafka's protocol


def outgoing(count: int, size: int = 10) -> list[Outgoing]:
    return [Outgoing(f"{number}-0", b"job", b"x" * size) for number in range(count)]


class Refusing:
    """A producer that keeps what it would send, and fails as it is told to."""

    def __init__(self, *failures: Exception | None) -> None:
        self.sent: list[list[object]] = []
        self._failures = iter([*failures, *itertools.repeat(None, 99)])
        self._real = AIOKafkaProducer(max_batch_size=1_000)

    async def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def create_batch(self):
        return self._real.create_batch()

    async def send_batch(self, batch, topic: str, *, partition: int) -> asyncio.Future:
        acknowledged = asyncio.get_running_loop().create_future()
        failure = next(self._failures)
        self.sent.append([failure.__class__.__name__ if failure else "ok", batch.record_count()])
        asyncio.get_running_loop().call_later(0.01, settle, acknowledged, failure)
        return acknowledged

    async def stop(self) -> None:
        await self._real.stop()


def settle(future: asyncio.Future, failure: Exception | None) -> None:
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


def writer_on(producer: Refusing) -> TopicWriter:
    writer = TopicWriter(Topic(Cluster("nowhere:1"), "t"), idempotent=False)
    writer._producer = producer
    return writer


async def test_nothing_is_sent_behind_a_batch_that_was_not_acknowledged() -> None:
    """Or the second would stand before the first for good, when both are sent again."""
    producer = Refusing(None, KafkaTimeoutError())
    with pytest.raises(Unavailable):
        await writer_on(producer).write(outgoing(8, 300))
    assert producer.sent == [["ok", 3], ["KafkaTimeoutError", 3]]


async def test_a_record_that_is_too_large_is_found_and_returned_and_the_others_are_written() -> None:
    too_large = MessageSizeTooLargeError()
    producer = Refusing(too_large, None, too_large, None)
    written = await writer_on(producer).write(outgoing(3))
    await producer.stop()
    assert [record.position for record, _ in written.refused] == ["1-0"]
    assert (written.count, written.last) == (2, {0: "2-0"})


async def test_partitions_are_chosen_as_by_kafkas_own_clients(broker: Broker) -> None:
    """A consumer in Java that joins two topics by job finds them in the same partitions."""
    name = await new_topic(broker, partitions=12)
    writer = TopicWriter(topic_of(broker, name), idempotent=False)
    written = await writer.write([Outgoing("1-0", b"21", b"{}"), Outgoing("2-0", b"foobar", b"{}")])
    await writer.aclose()
    # murmur2 of Kafka's UtilsTest: "21" -> -973932308, "foobar" -> -790332482
    assert written.last == {(-973932308 & 0x7FFFFFFF) % 12: "1-0", (-790332482 & 0x7FFFFFFF) % 12: "2-0"}


async def test_a_broker_without_idempotent_producers_is_told_with_what_to_do(broker: Broker) -> None:
    writer = TopicWriter(topic_of(broker, await new_topic(broker)), idempotent=True)
    with pytest.raises(Unavailable, match="HEADRACE_KAFKA__IDEMPOTENT=false"):
        await writer.write(outgoing(1))
    await writer.aclose()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that nobody vouches for, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.now(datetime.UTC)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(host, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return str(files[0]), str(files[1])


async def test_over_tls_only_a_broker_that_somebody_vouches_for_is_written_to(certificate: tuple[str, str]) -> None:
    """The broker of the tests cannot (it takes a certificate or its key, not both): a door in front of it does."""
    with closed_port() as address:
        broker = Broker(at=address)
        await broker.up()
        try:
            async with door(address, broker.servers, server_tls(certificate)):
                place = {"HEADRACE_KAFKA__MIRROR": f"kafka://{address}/t", "HEADRACE_KAFKA__TLS": "true"}
                assert await can_write(topic_set(place | {"HEADRACE_KAFKA__CA_FILE": certificate[0]}))
                assert not await can_write(topic_set(place))
                assert not await can_write(topic_set({"HEADRACE_KAFKA__MIRROR": f"kafka://{address}/t"}))
        finally:
            broker.stop()


def topic_set(settings: dict[str, str]) -> Topic:
    kafka = load_settings(settings).kafka
    topic = topic_at(kafka.topic(), kafka)
    assert topic is not None
    return topic


async def can_write(topic: Topic) -> bool:
    writer = TopicWriter(topic, idempotent=False)
    try:
        return (await writer.write(outgoing(1))).count == 1
    except Unavailable:
        return False
    finally:
        await writer.aclose()


@pytest.fixture
def asking() -> Iterator[Broker]:
    """A broker that asks who comes, and knows nobody."""
    running = Broker("--authentication")
    yield running
    running.stop()


async def test_a_wrong_password_is_told_without_it_and_can_be_mended(asking: Broker, caplog) -> None:
    """aiokafka answers a refused SCRAM with KeyError: it must not pass as a fault of ours."""
    cluster = Cluster(asking.servers, mechanism="SCRAM-SHA-256", user="mirror", password=PASSWORD)
    topic = Topic(cluster, "t")
    await asking.up()
    writer = TopicWriter(topic, idempotent=False)
    with pytest.raises(Unavailable) as writing:
        await writer.write(outgoing(1))
    with pytest.raises(Unavailable) as reading:
        await TopicReader(topic, no_one).open()
    for told in (str(writing.value), str(reading.value), repr(topic), caplog.text):
        assert PASSWORD not in told
    assert "password" in str(writing.value)


async def test_who_we_are_is_said_before_anything_else() -> None:
    """A door that asks for user and password, as a broker does, and lets through who has both."""
    with closed_port() as address:
        broker = Broker(at=address)
        await broker.up()
        try:
            async with asking_door(address, broker.servers, b"\0mirror\0" + PASSWORD.encode()):
                mechanism = {"mechanism": "PLAIN", "user": "mirror"}
                assert await can_write(Topic(Cluster(address, password=PASSWORD, **mechanism), "t"))
                assert not await can_write(Topic(Cluster(address, password="another", **mechanism), "t"))
                assert not await can_write(Topic(Cluster(address), "t"))
        finally:
            broker.stop()


@contextlib.asynccontextmanager
async def asking_door(address: str, servers: str, wanted: bytes) -> AsyncIterator[None]:
    """Answers SaslHandshake and SaslAuthenticate itself; asks the broker which versions there are."""
    host, port = servers.split(":")

    async def frame(reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))

    def sized(content: bytes) -> bytes:
        return len(content).to_bytes(4) + content

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            is_known = False
            while not is_known:
                asked = await frame(reader)
                key, correlation = int.from_bytes(asked[:2]), asked[4:8]
                if key == API_VERSIONS:
                    inner_writer.write(sized(asked))
                    writer.write(sized(await frame(inner_reader)))
                elif key == SASL_HANDSHAKE:
                    writer.write(sized(correlation + b"\0\0" + b"\0\0\0\1\0\5PLAIN"))
                elif key == SASL_AUTHENTICATE and asked.endswith(wanted):
                    writer.write(sized(correlation + b"\0\0" + b"\xff\xff" + sized(b"") + bytes(8)))
                    is_known = True
                else:
                    break
            if is_known:
                await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
            writer.close()
            inner_writer.close()

    async with await asyncio.start_server(ask, "127.0.0.1", int(address.split(":")[1])):
        yield


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


async def no_one() -> None:
    """Nobody else reads."""


def test_what_is_set_is_what_clients_are_given(certificate: tuple[str, str], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    given = {
        "HEADRACE_KAFKA__MIRROR": "kafka://one:9093,two:9093/events",
        "HEADRACE_KAFKA__TLS": "true", "HEADRACE_KAFKA__CA_FILE": certificate[0],
        "HEADRACE_KAFKA__CLIENT_CERT_FILE": certificate[0], "HEADRACE_KAFKA__CLIENT_KEY_FILE": certificate[1],
        "HEADRACE_KAFKA__SASL": "PLAIN", "HEADRACE_KAFKA__USER": "mirror",
        "HEADRACE_KAFKA__PASSWORD_FILE": str(secret),
    }  # fmt: skip
    settings = load_settings(given).kafka
    topic = topic_at(settings.topic(), settings)
    assert topic is not None
    options = topic.cluster.options()
    assert topic.name == "events"
    assert (options["bootstrap_servers"], options["security_protocol"]) == ("one:9093,two:9093", "SASL_SSL")
    assert (options["sasl_mechanism"], options["sasl_plain_password"]) == ("PLAIN", PASSWORD)
    assert options["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert options["ssl_context"].check_hostname
    assert PASSWORD not in repr(settings) + repr(topic) + repr(topic.cluster)
    assert topic_at(None, settings) is None
    missing = load_settings(given | {"HEADRACE_KAFKA__CA_FILE": str(tmp_path / "none")}).kafka
    with pytest.raises(ConfigError, match="HEADRACE_KAFKA__CA_FILE"):
        topic_at(missing.topic(), missing)

"""A checkpoint is worth something only as the holder of the key signed it, for this pool, at this place."""

import base64
from typing import Any

import pytest

from contracts.archive.checkpoints import Signer, is_genuine, key_id, public_of
from contracts.audit.chain_audit import ChainAudit
from contracts.audit.findings import Findings
from contracts.events import LogCheckpointed

SIGNER = Signer(bytes(range(32)))
SAID = SIGNER.sign("default", 2, "1764502306000-3", 12_000, "ab" * 32)


def test_what_was_signed_is_genuine_for_its_pool_and_its_key_alone() -> None:
    other = Signer(bytes(32))

    assert is_genuine("default", SAID, SIGNER.public)
    assert is_genuine("default", LogCheckpointed.model_validate_json(SAID.to_json()), SIGNER.public)
    assert not is_genuine("large", SAID, SIGNER.public)
    assert not is_genuine("default", SAID, other.public)
    assert not is_genuine("default", other.sign("default", 2, SAID.position, SAID.count, SAID.hash), SIGNER.public)


@pytest.mark.parametrize(
    "change",
    [
        {"position": "1764502306000-4"}, {"count": 12_001}, {"epoch": 1}, {"hash": "ac" * 32},
        {"key_id": key_id(Signer(bytes(32)).public)}, {"signature": ""}, {"signature": "not base64"},
        {"signature": base64.b64encode(bytes(64)).decode()}, {"signature": SAID.signature[:-4]},
        {"signature": SAID.signature + "AAAA"}, {"count": 1, "position": "2000-31764502306000"},
    ],
    ids=lambda change: "-".join(change),
)  # fmt: skip
def test_nothing_of_it_can_be_changed(change: dict[str, Any]) -> None:
    assert not is_genuine("default", SAID.model_copy(update=change), SIGNER.public)


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(32), bytes(33)])
def test_a_key_that_is_none_signs_nothing(public: bytes) -> None:
    assert not is_genuine("default", SAID, public)


def test_an_older_checkpoint_of_another_history_is_not_taken_for_this_ones() -> None:
    """Replayed: genuine, and of a place at which this archive has another digest, or no end of a segment."""
    findings = Findings()
    chain = ChainAudit("default", findings)
    chain.upto = "1764502306000-9"

    chain.checkpoint("1764502307000-0", SAID, SIGNER.public)
    chain.checkpoint("1764502307000-1", SAID, Signer(bytes(32)).public)
    chain.checkpoint("1764502307000-2", SAID, public_of(None))
    later = SIGNER.sign("default", 2, "1764502306000-10", 1, "ab" * 32)  # of what was sealed meanwhile: not walked
    chain.checkpoint("1764502307000-3", later, SIGNER.public)

    assert [(each.kind, each.position) for each in findings.kept] == [
        ("checkpoint_differs", SAID.position), ("forged_checkpoint", "1764502307000-1"),
        ("forged_checkpoint", "1764502307000-2"),
    ]  # fmt: skip

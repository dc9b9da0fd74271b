"""`headrace webhook endpoints`, `deliveries` and `secret` against a real stack."""

from pathlib import Path

import pytest

from tests.headrace.up_process import Up
from tests.headrace.warm import Done, headrace

NOBODY = "http://127.0.0.1:1/hook"  # allowed, and nobody listens


def webhook(up: Up, *words: str) -> Done:
    return headrace(up, "webhook", *words, "-o", "json")


def test_an_endpoint_is_made_shown_changed_and_deleted(up: Up, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer s3cret\n")
    words = ("--event", "job.*", "-e", "thumbnail.ready", "--format", "flat", "--ordering", "strict", "--ed25519",
             "--rate-limit", "2.5", "--max-in-flight", "3", "--min-interval-ms", "0", "--description", "the shop",
             "-H", f"Authorization=@{tmp_path}/token", "-H", "X-Shop=a=b")  # fmt: skip
    made = webhook(up, "endpoints", "create", NOBODY, *words)

    assert made.exit_code == 0, made.err
    assert made.json["secret"].startswith("whsec_")
    assert "keep the secret now" in made.err
    shown = webhook(up, "endpoints", "show", made.json["id"]).json
    assert shown == {name: value for name, value in made.json.items() if name != "secret"}
    assert (shown["url"], shown["events"], shown["format"]) == (NOBODY, ["job.*", "thumbnail.ready"], "flat")
    assert (shown["rateLimit"], shown["maxInFlight"], shown["minIntervalMs"], shown["ed25519"]) == (2.5, 3, 0, True)
    assert shown["headers"] == {"Authorization": "***", "X-Shop": "***"}

    other = ("--to", NOBODY + "2", "--rate-limit", "none", "--no-ed25519", "--no-headers")
    changed = webhook(up, "endpoints", "update", made.json["id"], *other).json
    assert (changed["url"], changed["rateLimit"], changed["ed25519"], changed["headers"]) == (
        NOBODY + "2",
        None,
        False,
        {},
    )
    assert changed["maxInFlight"] == 3
    assert webhook(up, "endpoints", "disable", made.json["id"]).json["disabledWhy"] == "manual"
    assert made.json["id"] in headrace(up, "webhook", "endpoints", "list").out
    assert webhook(up, "endpoints", "test", made.json["id"]).exit_code == 5
    assert webhook(up, "endpoints", "enable", made.json["id"]).json["disabled"] is False

    listed = webhook(up, "endpoints", "list", "--tenant", "t_default").json["data"]
    assert [(each["tenantId"], each["origin"]) for each in listed if each["id"] == made.json["id"]] == [
        ("t_default", "http://127.0.0.1:1")
    ]
    assert webhook(up, "endpoints", "delete", made.json["id"]).json == {"id": made.json["id"], "deleted": True}
    assert webhook(up, "endpoints", "show", made.json["id"]).exit_code == 3


def test_secrets_are_rotated_and_shown_once(up: Up) -> None:
    made = webhook(up, "endpoints", "create", NOBODY, "--disabled").json

    rotated = webhook(up, "endpoints", "rotate", made["id"], "--overlap-s", "60", "--reason", "trial").json

    assert made["disabled"] is True
    assert rotated["secret"] not in (made["secret"], None)
    assert rotated["oldSecretUntil"]
    webhook(up, "endpoints", "delete", made["id"])
    headrace(up, "tenant", "create", "t_secret")
    own = webhook(up, "secret", "rotate", "--tenant", "t_secret").json
    assert own["secret"].startswith("whsec_")


def test_what_failed_is_listed_counted_and_sent_again(up: Up) -> None:
    made = webhook(up, "endpoints", "create", NOBODY).json
    sent = webhook(up, "endpoints", "test", made["id"]).json
    while (shown := webhook(up, "deliveries", "show", sent["id"]).json)["attempts"] == 0:
        pass  # the notifier looks once in a while
    assert shown["attemptsMade"][0]["outcome"] == "refused"
    assert "refused" in headrace(up, "webhook", "deliveries", "show", sent["id"]).out
    assert webhook(up, "endpoints", "stats", made["id"]).json["failed"] >= 1
    webhook(up, "endpoints", "disable", made["id"])

    of_it = ("--endpoint", made["id"])
    listed = webhook(up, "deliveries", "list", *of_it, "--state", "held", "--since", "1h").json["data"]
    assert [each["id"] for each in listed] == [sent["id"]]
    assert webhook(up, "deliveries", "list", *of_it, "--until", "1h").json["data"] == []
    assert webhook(up, "deliveries", "list", *of_it, "--job", sent["jobId"], "--event", "x").json["data"] == []
    assert [each["tenantId"] for each in webhook(up, "deliveries", "list", "--all-tenants", *of_it).json["data"]] == [
        "t_default"
    ]
    many = ("deliveries", "redeliver", "--since", "1h", *of_it)
    for admin in ((), ("--all-tenants",), ("--tenant", "t_default")):
        counted = webhook(up, *many, *admin, "--dry-run").json
        assert (counted["dryRun"], counted["matched"], counted["redelivered"]) == (True, 1, 0)
        assert counted["sample"] == [sent["id"]]
        refused = webhook(up, *many, *admin)
        assert (refused.exit_code, refused.json["failed"]) == (1, 1)
        assert refused.json["failures"] == [{"id": sent["id"], "code": "endpoint_disabled"}]

    webhook(up, "endpoints", "enable", made["id"])
    assert webhook(up, *many).json["redelivered"] == 1
    assert webhook(up, "deliveries", "redeliver", sent["id"]).json["id"] == sent["id"]
    assert webhook(up, "endpoints", "recover", made["id"], "--since", "1h").json["state"] == "completed"
    assert webhook(up, "endpoints", "backfill", made["id"], "--since", "2026-11-30T00:00:00Z").json["id"]
    webhook(up, "endpoints", "delete", made["id"])


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("endpoints", "create"), 2),
        (("endpoints", "create", "http://10.0.0.1/"), 2),
        (("endpoints", "create", "nonsense"), 2),
        (("endpoints", "create", NOBODY, "--event", "no.such"), 2),
        (("endpoints", "create", NOBODY, "--format", "xml"), 2),
        (("endpoints", "create", NOBODY, "-H", "Host=x"), 2),
        (("endpoints", "create", NOBODY, "-H", "no-equals-sign"), 2),
        (("endpoints", "create", NOBODY, "-H", "X=@/nowhere"), 2),
        (("endpoints", "create", NOBODY, "-H", "X=a\r\nHost: b"), 2),
        (("endpoints", "create", NOBODY, "--rate-limit", "nan"), 2),
        (("endpoints", "create", NOBODY, "--max-in-flight", "many"), 2),
        (("endpoints", "show", "wh_00000000000000000000000000"), 3),
        (("endpoints", "show", "../webhook-deliveries"), 2),
        (("endpoints", "update", "wh_00000000000000000000000000"), 2),
        (("endpoints", "update", "wh_00000000000000000000000000", "--no-headers", "-H", "a=b"), 2),
        (("endpoints", "rotate", "wh_00000000000000000000000000", "--overlap-s", "-1"), 2),
        (("endpoints", "recover", "wh_00000000000000000000000000"), 2),
        (("endpoints", "recover", "wh_00000000000000000000000000", "--since", "yesterday"), 2),
        (("endpoints", "backfill", "wh_00000000000000000000000000", "--since", "1h"), 3),
        (("deliveries", "show", "dlv_1"), 3),
        (("deliveries", "list", "--state", "lost"), 2),
        (("deliveries", "list", "--since", "9999999999999d"), 2),
        (("deliveries", "redeliver"), 2),
        (("deliveries", "redeliver", "dlv_1", "--dry-run"), 2),
        (("deliveries", "redeliver", "dlv_1", "--since", "1h"), 2),
        (("deliveries", "redeliver", "dlv_1"), 3),
        (("deliveries", "list", "--job", "nonsense"), 2),
        (("secret", "rotate", "--tenant", "t_absent"), 3),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(up: Up, words: tuple[str, ...], exit_code: int) -> None:
    done = headrace(up, "webhook", *words)

    assert done.exit_code == exit_code, done.err
    assert (done.out, "Traceback" in done.err) == ("", False)
    assert done.err

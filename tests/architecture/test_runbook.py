"""What the pages tell an operator to look for and to set is what the code says and takes."""

import re
from pathlib import Path

from pydantic import BaseModel

from contracts.settings import PREFIX, Settings
from services.ingest import readiness
from services.ingest.edge.problems import CATALOGUE

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "infra" / "README.md").read_text()
PAGES = (ROOT / "README.md").read_text() + RUNBOOK


def setting_names() -> set[str]:
    """Every variable, as an operator writes it."""
    names = set()
    for group, group_field in Settings.model_fields.items():
        kind = group_field.annotation
        is_group = isinstance(kind, type) and issubclass(kind, BaseModel)
        inner = [f"{group}__{name}" for name in kind.model_fields] if is_group else [group]
        names |= {PREFIX + name.upper() for name in inner}
    return names | {f"{name}_FILE" for name in names if name.endswith(("__KEY", "__PASSWORD"))}


def test_every_reason_of_readiness_has_its_line_in_the_runbook() -> None:
    judging = Path(readiness.__file__).read_text().partition("def _fault")[2].partition("    def ")[0]
    reasons = set(re.findall(r'return f?"([a-z_]+)', judging))
    told = re.findall(r"^\| `/readyz` 503, (.*?) \|", RUNBOOK, re.MULTILINE)

    assert len(reasons) >= 5
    assert {code for cell in told for code in re.findall(r"`(\w+)`", cell)} == reasons


def test_every_refusal_in_the_runbook_is_one_of_the_service() -> None:
    refusals = re.findall(r"^\| POST answers (\d+) `(\w+)`", RUNBOOK, re.MULTILINE)

    assert len(refusals) >= 4
    assert [(code, int(status)) for status, code in refusals if CATALOGUE[code].status != int(status)] == []


def test_every_word_of_a_log_in_the_runbook_is_written_somewhere() -> None:
    words = set(re.findall(r"^\| `(\w+)` in (?:a worker|the scheduler|the notifier)'s log", RUNBOOK, re.MULTILINE))
    words |= set(re.findall(r"`(slot_back|device_failed_test)`", RUNBOOK))
    folders = (ROOT / "services", ROOT / "contracts")
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))

    assert len(words) >= 5
    assert [word for word in words if f'"{word}"' not in code] == []


def test_every_setting_that_a_page_names_exists() -> None:
    named = set(re.findall(r"HEADRACE_[A-Z0-9_]*[A-Z0-9]", PAGES))
    groups = {f"{PREFIX}{group.upper()}" for group in Settings.model_fields}

    assert len(named) > 5
    assert named - setting_names() - groups == set()

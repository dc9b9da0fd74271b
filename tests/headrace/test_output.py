"""What people and machines wrote steers no terminal that shows it."""

import orjson
import pytest

from headrace.output import Format, show_list, show_one

STEERS = "\x1b]0;t\x07\x9b31m\u202ered"


def test_a_table_shows_what_would_steer_a_terminal_and_json_stays_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    item = {"name": STEERS, "data": {"said": STEERS}, "words": "é\u00a0ok"}
    for form in (Format.TABLE, Format.NDJSON):
        show_one(item, form)
        show_list({"data": [item], "hasMore": False}, list(item), form)
        shown = capfd.readouterr().out

        if form is Format.TABLE:
            assert not {*shown} & {*STEERS} - {*"0;t31mred]"}
            assert shown.count("\ufffd31m") == 4
            assert "é\u00a0ok" in shown
        else:
            assert [orjson.loads(line) for line in shown.splitlines()] == [item] * 2

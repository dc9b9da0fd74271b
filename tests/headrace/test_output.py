"""A table shows ids and names whole, and what people and machines wrote steers no terminal that shows it."""

import orjson
import pytest

from headrace.output import PIPE_WIDTH, Format, show_list, show_one

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


def test_a_long_last_column_is_broken_and_nothing_before_it_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    """What cannot be read whole cannot be pasted either."""
    about = "word " * PIPE_WIDTH
    show_list({"data": [{"type": "artifact.upload_started", "about": about}]}, ("type", "about"), Format.TABLE)

    out = capfd.readouterr().out
    assert "artifact.upload_started" in out
    assert out.count("word") == PIPE_WIDTH
    assert "\N{HORIZONTAL ELLIPSIS}" not in out

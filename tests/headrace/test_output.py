"""What a command prints for people."""

import pytest

from headrace.output import PIPE_WIDTH, Format, show_list


def test_a_long_last_column_is_broken_and_nothing_before_it_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be read whole cannot be pasted either."""
    about = "word " * PIPE_WIDTH
    show_list({"data": [{"type": "artifact.upload_started", "about": about}]}, ("type", "about"), Format.TABLE)

    out = capsys.readouterr().out
    assert "artifact.upload_started" in out
    assert out.count("word") == PIPE_WIDTH
    assert "\N{HORIZONTAL ELLIPSIS}" not in out

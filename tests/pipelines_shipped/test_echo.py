"""The smallest pipeline does what its twelve lines say."""

from types import ModuleType

from tests.pipelines_shipped.conftest import RecordedJob, device


def test_echo_gives_back_its_inputs_and_reports_once(echo: ModuleType) -> None:
    job = RecordedJob()
    inputs = {"prompt": "hello", "anything": [1, None]}

    result = echo.run(echo.load(device("sim"), None), inputs, job)

    assert result == {"echo": inputs, "device": "sim"}
    assert job.progressed == [(1, 1, "finalizing")]

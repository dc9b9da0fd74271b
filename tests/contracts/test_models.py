"""pipelines.toml: what is read, what is refused and how it is said."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError
from contracts.model_spec import predict_vram
from contracts.models import ModelRegistry, describe, load, parse_models
from contracts.profiles import Machine, ModelProfiles, Point, Prediction, make_profile

SCHEMA = b'{"type": "object", "properties": {"prompt": {"type": "string"}}}'
MODEL = '[models.one]\nentry = "one/pipeline.py"\ninputs = "one/inputs.schema.json"\nvram_mib = 1\n'
SHIPPED = Path(__file__).parents[2] / "pipelines" / "pipelines.toml"


def parse(text: str, schema: bytes = SCHEMA, profile: bytes | None = None) -> ModelRegistry:
    def read(name: str) -> bytes:
        if not name.startswith("profiles/"):
            return schema
        if profile is None:
            raise FileNotFoundError(name)
        return profile

    return parse_models(text, "pipelines.toml", Path("/base"), read)


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.faults


def test_defaults_are_filled_in_and_paths_are_absolute() -> None:
    spec = parse(MODEL).find("one")

    assert spec is not None
    assert (spec.version, spec.pools, spec.max_batch) == ("1", ("default",), 1)
    assert (spec.timeout_s, spec.silence_s, spec.interpreter) == (600.0, None, "")
    assert spec.entry == Path("/base/one/pipeline.py")
    assert spec.vram_bytes == 1024 * 1024


def test_every_key_of_the_file_reaches_the_spec() -> None:
    text = (
        MODEL
        + 'version = "2.1"\npools = ["a", "b-1"]\nmax_batch = 4\ntimeout_s = 1.5\nsilence_s = 2\n'
        + 'interpreter = "venv/bin/python"\nenv = { HF_HUB_OFFLINE = "1" }\nresources = { moderation = 2 }\n'
        + "[resources.moderation]\nrate = 10\nwindow_s = 1\n"
    )

    registry = parse(text)
    spec = registry.find("one@2.1")

    assert spec is not None
    assert (spec.pools, spec.max_batch, spec.timeout_s, spec.silence_s) == (("a", "b-1"), 4, 1.5, 2.0)
    assert spec.interpreter == "/base/venv/bin/python"
    assert dict(spec.env) == {"HF_HUB_OFFLINE": "1"}
    assert dict(spec.resources) == {"moderation": 2}
    assert registry.resources["moderation"].rate == 10
    assert registry.pools == ("a", "b-1")


def test_a_model_is_found_by_name_or_by_exact_version_only() -> None:
    registry = parse(MODEL)

    assert registry.find("one") is registry.find("one@1")
    assert registry.find("one@2") is None
    assert registry.find("two") is None
    assert registry.find("") is None


def test_all_faults_of_a_file_are_reported_together_with_their_places() -> None:
    text = """
    surprise = 1
    [models.one]
    entry = "/etc/passwd"
    inputs = 7
    vram_mib = -5
    max_batch = true
    timeout_s = inf
    pools = ["Not A Pool"]
    vram_mb = 12
    env = { "1X" = "a", OK = 3 }
    resources = { nothing = 1 }
    [models."Bad Name"]
    entry = "../x.py"
    inputs = "a.json"
    vram_mib = 0
    """

    faults = faults_of(text)

    places = [fault.split(": ")[1] for fault in faults]
    assert all(fault.startswith("pipelines.toml: ") for fault in faults)
    assert set(places) == {
        "surprise",
        "models.one.entry",
        "models.one.inputs",
        "models.one.vram_mib",
        "models.one.max_batch",
        "models.one.timeout_s",
        "models.one.pools",
        "models.one.vram_mb",
        "models.one.env",
        "models.one.env.OK",
        "models.one.resources.nothing",
        "models.Bad Name",
        "models.Bad Name.entry",
        "models.Bad Name.vram_mib",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no model"),
        ("models = 3", "must be a table"),
        ("[models]\none = 3", "write [models.one]"),
        (MODEL + MODEL, "one"),
        ("[models.one", "is not TOML"),
        (MODEL + "vram = { grid = { prompt = [1] } }", "must be an integer or number of the schema"),
        (MODEL + "vram = { grid = { size = [] } }", "models.one.vram.grid.size: must be a list of numbers above 0"),
        (MODEL + "vram = { grid = { size = [0, 1] } }", "must be a list of numbers above 0"),
        (MODEL + "vram = { gird = { size = [1] } }", "models.one.vram.gird: is not a key"),
        (MODEL.replace('"one/pipeline.py"', '""'), "entry: is missing"),
        (MODEL + "pools = []", "one or more names"),
        (MODEL + 'pools = ["a", "a"]', "twice"),
        (MODEL + 'version = "a b"', "must look like"),
        (MODEL + "timeout_s = 0", "above 0"),
        (MODEL + "silence_s = nan", "above 0"),
        (MODEL + "resources = { r = 3 }\n[resources.r]\nrate = 2\nwindow_s = 1", "no job could start"),
        (MODEL + "[resources.r]\nrate = 2\nper_s = 1", "per_s: is not a key"),
    ],
)
def test_a_fault_says_what_is_wrong(text: str, words: str) -> None:
    assert any(words in fault for fault in faults_of(text))


def test_a_fault_never_repeats_text_that_may_be_a_secret() -> None:
    text = MODEL + 'max_batch = "hunter2"\n[models.one.env]\nTOKEN = ["hunter2"]'

    assert "hunter2" not in "\n".join(faults_of(text))


def test_a_missing_file_and_a_link_out_of_the_folder_are_faults(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(SCHEMA)
    folder = tmp_path / "pipelines"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "inputs.schema.json").symlink_to(tmp_path / "secret.json")
    (folder / "pipelines.toml").write_text(MODEL)

    with pytest.raises(ConfigError) as caught:
        load(folder / "pipelines.toml")

    assert [fault.split(": ")[1] for fault in caught.value.faults] == [
        "models.one.entry",
        "models.one.inputs",
    ]
    assert "No such file" in caught.value.faults[0]
    assert "leaves the folder" in caught.value.faults[1]


def test_a_file_that_cannot_be_read_is_one_readable_fault(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")

    for name in ("absent.toml", "latin.toml"):
        with pytest.raises(ConfigError, match=name):
            load(tmp_path / name)


def test_the_public_description_holds_no_path_and_no_environment() -> None:
    spec = parse(MODEL + 'env = { TOKEN = "hunter2" }').find("one")
    assert spec is not None

    shown = json.dumps(describe(spec))

    assert "hunter2" not in shown
    assert "/base" not in shown
    assert json.loads(shown)["inputs"] == json.loads(SCHEMA)
    assert "hunter2" not in repr(spec)


def test_the_shipped_file_is_valid_and_opens_no_other_pool() -> None:
    registry = load(SHIPPED)

    assert registry.names == ("scenes", "echo")
    assert registry.pools == ("default",)


_TOML_VALUES = st.one_of(
    st.booleans().map(lambda flag: str(flag).lower()),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["inf", "-inf", "nan", "1e300", "0.0", "1979-05-27", "[]", "{}", '""', '"a"', '["a"]', "[1]"]),
)


@given(st.dictionaries(st.sampled_from([*"abc", "version", "pools", "max_batch", "timeout_s", "env"]), _TOML_VALUES))
def test_whatever_the_values_are_the_answer_is_a_registry_or_a_list_of_faults(values: dict[str, str]) -> None:
    text = MODEL + "".join(f"{key} = {value}\n" for key, value in values.items())

    answer = _registry_or_faults(text)

    if isinstance(answer, ModelRegistry):
        (spec,) = answer
        assert spec.timeout_s > 0
        assert spec.max_batch >= 1
        assert spec.pools
    else:
        assert answer


def _registry_or_faults(text: str) -> ModelRegistry | list[str]:
    try:
        return parse(text)
    except ConfigError as error:
        return error.faults


def test_an_author_may_say_which_inputs_decide_how_long_a_job_takes() -> None:
    schema = b'{"type": "object", "properties": {"steps": {"type": "integer"}, "scale": {"type": "number"}}}'

    def spec(line: str) -> tuple[str, ...]:
        return parse(MODEL + line, schema).specs[0].cost_inputs

    assert spec("") == ("steps",)
    assert spec('cost_inputs = ["scale", "steps"]') == ("scale", "steps")
    assert spec("cost_inputs = []") == ()
    with pytest.raises(ConfigError, match=r"cost_inputs: prompt must be an integer"):
        spec('cost_inputs = ["prompt"]')


SIZED = b'{"type": "object", "properties": {"size": {"type": "integer", "default": 64}, "steps": {"type": "integer"}}}'
GRID = "vram = { grid = { size = [128, 64, 64] } }\n"


def profile(model: str = "one@1") -> bytes:
    points = [Point(inputs={"size": size}, peak_bytes=1000 * size) for size in (64, 128, 256)]
    made = make_profile(Machine(kind="cpu"), ["size"], points, 1 << 30)
    return ModelProfiles(model=model, profiles=(made,)).to_json().encode()


def test_a_grid_is_ascending_and_each_value_stands_there_once() -> None:
    assert dict(parse(MODEL + GRID, SIZED).specs[0].vram_grid) == {"size": (64, 128)}
    assert dict(parse(MODEL, SIZED).specs[0].vram_grid) == {}


def test_a_profile_decides_what_a_job_needs_and_without_one_the_author_or_nobody_does() -> None:
    measured = parse(MODEL + GRID, SIZED, profile()).specs[0]
    declared, unknown = parse(MODEL).specs[0], parse(MODEL.replace("vram_mib = 1", "")).specs[0]

    assert predict_vram(measured, {"size": 128}) == Prediction(138_240, 128_000)
    assert predict_vram(measured, {}).bytes == 69_120  # the default of the schema
    assert predict_vram(measured, {"size": 2560}).alone
    assert predict_vram(measured, {"size": [1]}) == predict_vram(measured, {"size": "1"})
    assert predict_vram(measured, {"size": 1}) != predict_vram(measured, {"size": True})
    assert predict_vram(declared, {"size": 2560}) == Prediction(1 << 20, 1 << 20)
    assert predict_vram(unknown, {}) == Prediction(0, 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{}", "is no profile: model: Field required"), (profile("two@1"), "is of two@1"), (b"\xff", "is no profile")],
)
def test_a_profile_that_cannot_be_used_is_a_fault_and_says_what_to_do(content: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(MODEL, profile=content)

    (fault,) = caught.value.faults
    assert fault.startswith("pipelines.toml: models.one: profiles/one@1.json is ")
    assert words in fault
    assert fault.endswith("remove it, or measure again with `headrace vram audit`")


@pytest.mark.parametrize("declared", ["0", "-1", "0.5", "true"])
def test_a_model_that_is_said_to_need_nothing_is_refused(declared: str) -> None:
    """Field case 68: who does not know what a model takes says nothing; then it runs alone."""
    (fault,) = faults_of(MODEL.replace("vram_mib = 1", f"vram_mib = {declared}"))

    assert "models.one.vram_mib: must be a whole number of 1 or more" in fault

"""From measured peaks to bytes: the fit, what it may be asked, headroom, padding, and the exact concurrency."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.profiles import (
    Machine,
    ModelProfiles,
    Point,
    Prediction,
    Profile,
    concurrency,
    expect,
    has_drifted,
    make_profile,
    padded,
    predict,
    predict_for,
    read_profiles,
    reserved,
    unlike,
)

MIB = 1 << 20
HERE = Machine(kind="cuda", name="NVIDIA L4", driver="550.54", runtimes={"torch": "2.13.0"}, revision="ab12")
SIZES = (64, 128, 256, 512)


def profile_of(peaks: dict[int, int | None], budget_bytes: int = 24 << 30, context_bytes: int = 0) -> Profile:
    points = [Point(inputs={"size": size}, peak_bytes=peak) for size, peak in peaks.items()]
    return make_profile(HERE, ["size"], points, budget_bytes, context_bytes)


def grid(peak_of: st.SearchStrategy[int]) -> st.SearchStrategy[list[Point]]:
    """Points of a grid of up to three inputs, any peaks."""
    columns = st.lists(st.lists(st.integers(1, 2_000), min_size=1, max_size=4, unique=True), min_size=1, max_size=3)

    @st.composite
    def points(draw: st.DrawFn) -> list[Point]:
        names = ["width", "height", "batch"]
        found = product(*draw(columns))
        return [
            Point(inputs=dict(zip(names, values, strict=False)), peak_bytes=draw(st.none() | peak_of))
            for values in found
        ]

    return points().filter(lambda made: any(point.peak_bytes is not None for point in made))


def made_of(points: list[Point], context_bytes: int = 0) -> Profile:
    return make_profile(HERE, sorted(points[0].inputs), points, 1 << 40, context_bytes)


@given(grid(st.integers(0, 1 << 36)), st.integers(0, 1 << 30))
def test_no_job_reserves_less_than_its_parameters_took_in_the_audit(points: list[Point], context_bytes: int) -> None:
    profile = made_of(points, context_bytes)

    for point in points:
        found = predict(profile, point.inputs)
        assert found.bytes >= context_bytes + (point.peak_bytes or 0)
        if point.peak_bytes is None:
            assert found.bytes >= found.least_bytes > profile.budget_bytes
            assert found.alone


@given(grid(st.integers(0, 1 << 36)), st.data())
def test_more_of_a_parameter_never_reserves_less(points: list[Point], data: st.DataObject) -> None:
    profile = made_of(points)
    less = {name: data.draw(st.integers(0, 5_000)) for name in points[0].inputs}
    more = {name: value + data.draw(st.integers(0, 5_000)) for name, value in less.items()}

    assert predict(profile, more).bytes >= predict(profile, less).bytes
    assert predict(profile, more).least_bytes >= predict(profile, less).least_bytes
    assert predict(profile, more).alone >= predict(profile, less).alone


@given(st.floats(0, 1e9), st.floats(1e4, 1e7), st.floats(-0.01, 0.01))
def test_a_line_is_found_again_and_said_to_be_one(base: float, slope: float, wobble: float) -> None:
    sign = {size: 1 if index % 2 else -1 for index, size in enumerate(SIZES)}
    profile = profile_of({size: round((base + slope * size) * (1 + wobble * sign[size])) for size in SIZES})

    assert profile.fit.kind in ("linear", "flat")
    assert profile.fit.worst_error <= 0.05
    assert expect(profile, {"size": 700})[0] == pytest.approx(base + slope * 700, rel=0.11)


def test_what_grows_with_the_square_gets_a_squared_term() -> None:
    profile = profile_of({size: 30 * MIB + 300 * size**2 for size in SIZES})

    assert profile.fit.kind == "squared"
    assert expect(profile, {"size": 384})[0] == pytest.approx(30 * MIB + 300 * 384**2, rel=0.01)


def test_what_follows_no_line_is_looked_up_at_the_next_grid_point_upwards() -> None:
    profile = profile_of({64: 100, 128: 100, 256: 900, 512: 950})

    assert profile.fit.kind == "table"
    assert [expect(profile, {"size": size}) for size in (1, 64, 129, 512)] == [
        (100, False), (100, False), (900, False), (950, False),
    ]  # fmt: skip
    assert expect(profile, {"size": 513}) == (950, True)


def test_nothing_is_read_off_a_line_past_one_and_a_half_times_the_largest_point() -> None:
    line = profile_of({size: 1000 * size for size in SIZES})
    exact = profile_of({64: 64_000, 512: 512_000})  # two points tell nothing about what lies between or beyond

    assert [predict(line, {"size": size}).alone for size in (768, 769)] == [False, True]
    assert [predict(exact, {"size": size}).alone for size in (512, 513)] == [False, True]
    assert predict(line, {"size": 5120}).bytes >= 5_120_000  # still the least that a device must have


def test_an_input_that_nobody_knows_needs_a_device_for_itself() -> None:
    profile = profile_of({size: 1000 * size for size in SIZES}, context_bytes=7)

    for inputs in ({}, {"size": None}, {"size": "512"}, {"size": True}, {"size": -1}):
        assert predict(profile, inputs) == predict(profile, {}), inputs
    assert (predict(profile, {}).bytes, predict(profile, {}).alone) == (7 + reserved(512_000), True)


def test_a_model_without_parameters_has_one_point() -> None:
    profile = make_profile(HERE, [], [Point(peak_bytes=1000)], 1 << 30)

    assert (predict(profile, {"seed": 3}).bytes, predict(profile, {}).alone) == (1080, False)


def test_a_profile_without_any_peak_is_none() -> None:
    with pytest.raises(ValueError, match="no point has a peak"):
        profile_of({64: None})


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 36), st.integers(0, 1 << 32), st.integers(1, 1 << 38))
def test_one_more_than_the_exact_number_does_not_fit(device: int, reserve: int, context: int, peak: int) -> None:
    n = concurrency(device, reserve, context, peak)

    assert n == 0 or n * (context + reserved(peak)) <= device - reserve
    assert (n + 1) * (context + reserved(peak)) > device - reserve


@given(grid(st.integers(0, 1 << 36)))
def test_a_file_is_read_back_as_it_was_written(points: list[Point]) -> None:
    file = ModelProfiles(model="scenes@1", profiles=(made_of(points),))

    assert read_profiles(file.to_json().encode()) == file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "JSON"),
        (b"{}", "model"),
        (b'{"model": "a@1", "profiles": [{"machine": {"kind": "cpu"}, "budgetBytes": 0}]}', "profiles.0.budgetBytes"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_profiles(text)


def test_a_point_must_have_the_inputs_of_the_fit() -> None:
    file = ModelProfiles(model="a@1", profiles=(profile_of({64: 1, 128: 2}),)).to_json()

    with pytest.raises(ValueError, match="does not have the inputs of the fit"):
        read_profiles(file.replace('"size": 64', '"sise": 64').encode())


def test_a_new_audit_takes_the_place_of_the_old_one_of_the_same_device_only() -> None:
    old, new = profile_of({64: 1}), profile_of({64: 2})
    other = old.model_copy(update={"machine": Machine(kind="cpu", name="x86_64")})

    file = ModelProfiles(model="a@1").with_profile(old).with_profile(other).with_profile(new)

    assert (file.of("cuda/NVIDIA L4"), file.of("cpu/x86_64"), file.of("cuda/H200")) == (new, other, None)
    assert len(file.profiles) == 2


def test_a_job_whose_device_is_not_known_yet_reserves_what_the_neediest_one_takes() -> None:
    small, large = profile_of({64: 1000}), profile_of({64: 4000})
    cpu = small.model_copy(update={"machine": Machine(kind="cpu", name="x86_64")})
    file = ModelProfiles(model="a@1", profiles=(large, cpu))
    size = {"size": 64}

    def found(*fleet: tuple[str, bool], declared: int = 0) -> Prediction:
        return predict_for(file, size, fleet, declared)

    assert found() == Prediction(reserved(4000), 1000)  # the CPU could hold it
    assert found(("cpu/x86_64", False)).bytes == reserved(1000)
    assert found(("cpu/x86_64", True)) == Prediction(1350, 1000)  # padding refuses nothing
    assert found(("cuda/H200", True)).bytes == padded(predict(large, size)).bytes
    assert found(("cpu/x86_64", False), ("cuda/NVIDIA L4", False)).bytes == reserved(4000)
    assert found(("rocm/MI300X", True), declared=7000) == Prediction(7000, 7000)  # a CPU tells nothing about it
    assert found(("rocm/MI300X", True), ("cpu/x86_64", False), declared=7000) == Prediction(7000, 1000)
    assert found(("rocm/MI300X", True), ("cpu/x86_64", False)) == Prediction(0, 0)


def test_what_is_unlike_the_audit_is_named() -> None:
    profile = profile_of({64: 1000})
    here = Machine(kind="cuda", name="NVIDIA L4", driver="560.1", runtimes={"torch": "2.14.0"}, revision="ab12")

    assert unlike(profile, HERE) == ()
    assert unlike(profile, HERE.model_copy(update={"runtimes": {"torch": "2.13.0", "jax": "1"}})) == ()
    assert unlike(profile, here) == ("driver 560.1 here, 550.54 in the audit", "torch 2.14.0 here, 2.13.0 in the audit")
    assert len(unlike(profile, Machine(kind="cpu"))) == 4


@pytest.mark.parametrize(("peak_bytes", "drifted"), [(1050, False), (1051, True)])
def test_a_peak_more_than_a_twentieth_above_the_profile_is_drift(peak_bytes: int, drifted: bool) -> None:
    assert has_drifted(profile_of({64: 1000}), {"size": 64}, peak_bytes) is drifted

"""A profile as rows of a table, as JSON, and in a few words. Pure.

Promises: the number of children that fit is that of admission: with headroom and context, without the reserve.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contracts.profiles import Profile, concurrency, expect, expect_of_run, reserved

MIB = 1 << 20


def rows(profile: Profile, device_bytes: int, reserve_bytes: int) -> list[dict[str, object]]:
    """Return one row for each measured point."""
    return [
        {
            **point.inputs,
            "peakMib": _mib(point.peak_bytes),
            "reservedMib": None if point.peak_bytes is None else _mib(_needed(profile, point.inputs)),
            "errorPercent": _error_percent(profile, point.inputs, point.peak_bytes),
            "concurrency": 0
            if point.peak_bytes is None
            else concurrency(device_bytes, reserve_bytes, profile.context_bytes, expect(profile, point.inputs)[0]),
            "ms": point.run_ms,
        }
        for point in profile.points
    ]


def columns(profile: Profile) -> tuple[str, ...]:
    """Return the columns of the table."""
    return (*profile.fit.inputs, "peakMib", "reservedMib", "errorPercent", "concurrency", "ms")


def summary(model: str, profile: Profile, device_bytes: int, reserve_bytes: int) -> dict[str, object]:
    """Return what is said below the table."""
    machine = profile.machine
    return {
        "model": model,
        "device": machine.device,
        "deviceMib": _mib(device_bytes),
        "reserveMib": _mib(reserve_bytes),
        "contextMib": _mib(profile.context_bytes),
        "weightsMib": _mib(profile.weights_bytes),
        "loadPeakMib": _mib(profile.load_peak_bytes),
        "fit": formula(profile),
        "worstErrorPercent": round(profile.fit.worst_error * 100, 2),
        "measuredAt": profile.measured_at or None,
    }


def formula(profile: Profile) -> str:
    """Write the fit for people."""
    fit = profile.fit
    x = " x ".join(fit.inputs) or "1"
    if fit.kind == "table":
        return "no line fits within 5 %: the next point upwards"
    terms = [f"{fit.base_bytes / MIB:.1f} MiB"]
    terms += [f"{fit.per_unit:,.1f} bytes x {x}"] if fit.per_unit else []
    terms += [f"{fit.per_square:,.4g} bytes x ({x})^2"] if fit.per_square else []
    return " + ".join(terms)


def document(
    model: str, profile: Profile, device_bytes: int, reserve_bytes: int, unlike: Sequence[str], more: Mapping[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """Return everything for programs."""
    return {
        **summary(model, profile, device_bytes, reserve_bytes),
        "points": rows(profile, device_bytes, reserve_bytes),
        "unlike": list(unlike),
        "profile": profile.model_dump(mode="json", by_alias=True, exclude_none=True),
        **more,
    }


def shown(point: Mapping[str, object]) -> str:
    """Write a point for people."""
    return ", ".join(f"{name}={value}" for name, value in point.items()) or "the one point"


def listed(points: Iterable[Mapping[str, object]]) -> str:
    """Write some points for people."""
    return "; ".join(shown(point) for point in points)


def _needed(profile: Profile, inputs: Mapping[str, object]) -> int:
    return profile.context_bytes + reserved(expect(profile, inputs)[0])


def _error_percent(profile: Profile, inputs: Mapping[str, object], peak_bytes: int | None) -> float | None:
    if peak_bytes is None:
        return None
    return round(100 * (expect_of_run(profile, inputs)[0] - peak_bytes) / max(1, peak_bytes), 2)


def _mib(amount: int | None) -> float | None:
    return None if amount is None else round(amount / MIB, 1)

# SPDX-License-Identifier: Apache-2.0
"""Figures as a person reads them, the same on the terminal, in Markdown and in HTML. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pdlab.loose import as_mapping, as_text
from pdlab.secret_values import HIDDEN, is_secret, without_secrets

NOT_AVAILABLE = "n/a"
# Below this, two or three decimals leave a digit or none.
SMALL = 0.0095


def model_name(plan: object) -> str | None:
    """The model's name as a plan has it; random weights are said beside it. None where there is none."""
    model = as_mapping(as_mapping(plan).get("model"))
    name = as_text(model.get("served_name"))
    return f"{name} (random weights)" if name and model.get("weights") == "dummy" else name


def tok_s(value: float | None) -> str:
    """Tokens per second: three or more digits that matter, thousands grouped."""
    return _figure(value)


def ms(value: float | None) -> str:
    """Milliseconds; n/a for a percentile that the sample cannot support."""
    return _figure(value)


def rounded(value: float | None) -> str:
    """A mean over repeats: three digits that matter, thousands grouped."""
    return NOT_AVAILABLE if value is None else f"{value:,.{_decimals(value)}f}"


def interval(mean: float, low: float | None, high: float | None) -> str:
    """A mean with its interval: "128 ± 4", "128 (96 to 171)" where the sides differ; the mean alone for one repeat."""
    said = rounded(mean)
    if low is None or high is None:
        return said
    below, above = mean - low, high - mean
    if abs(below - above) <= 0.02 * (abs(below) + abs(above)):
        half = (below + above) / 2
        decimals = _decimals(mean)
        least = 10.0**-decimals
        return f"{said} ± {half:,.{decimals}f}" if half == 0 or half >= least / 2 else f"{said} ± <{least:g}"
    return f"{said} ({rounded(low)} to {rounded(high)})"


def amount(mean: float, low: float | None, high: float | None) -> str:
    """As `interval`, of what cannot be less than nothing: a rate, a time."""
    return interval(mean, None if low is None else max(0.0, low), high)


def times(ratio: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio with its interval: "1.69× (1.60 to 1.78)"."""
    if ratio is None:
        return NOT_AVAILABLE
    said = f"{_ratio(ratio)}×"
    return said if low is None or high is None else f"{said} ({_ratio(low)} to {_ratio(high)})"


def _ratio(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _decimals(value: float) -> int:
    """Decimals that leave three digits that matter."""
    size = abs(value)
    if 0 < size < SMALL:
        return _two_digits(size)
    return 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 or size == 0 else 3


def seconds(value: float | None) -> str:
    """A duration: 0.8 s, 74.2 s, 3 min 12 s, 1 h 4 min."""
    if value is None:
        return NOT_AVAILABLE
    if value < 99.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: int | float | None) -> str:
    """Bytes in binary units: 912 KiB, 40.0 MiB."""
    if count is None:
        return NOT_AVAILABLE
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def done(completed: int | None, requested: int | None) -> str:
    """Completed of requested requests: 48/48; a question mark for what is not known."""
    return f"{'?' if completed is None else completed}/{'?' if requested is None else requested}"


def moment(iso: str | None) -> str:
    """A time of run.json as "2026-01-31 12:00:00 UTC"; as it stands when it is no time."""
    if iso is None:
        return NOT_AVAILABLE
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return iso


def shell_block(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """A command to copy into a shell: `env -i` with its environment, one option a line, every value quoted.

    Values that look like secrets are hidden: a report is made to be passed on.
    """
    lines = ["env -i"] if environment else []
    lines += [
        shlex.quote(f"{key}={HIDDEN if is_secret(key) else value}")
        for key, value in sorted((environment or {}).items())
    ]
    current: list[str] = []
    for item in without_secrets(argv):
        # An option with its value in one word is numactl's, in front of the program.
        if item.startswith("--") and "=" not in item and current:
            lines.append(shlex.join(current))
            current = []
        current.append(item)
    if current:
        lines.append(shlex.join(current))
    return " \\\n  ".join(lines)


def shell_line(argv: Sequence[str]) -> str:
    """A command as one line of a shell: every word quoted, values that look like secrets hidden."""
    return shlex.join(without_secrets(argv))


def _figure(value: float | None) -> str:
    if value is None:
        return NOT_AVAILABLE
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.1f}"
    return f"{value:.{_two_digits(value) if 0 < abs(value) < SMALL else 2}f}"


def _two_digits(value: float) -> int:
    """Decimals that leave two digits of a small value other than 0, which would else look like none."""
    return min(12, 1 - math.floor(math.log10(abs(value))))

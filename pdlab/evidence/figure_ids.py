# SPDX-License-Identifier: Apache-2.0
"""The ids of figures: how they are made, and how they are read. Pure.

An id is some parts with colons between them:

    LEG:LABEL:FIELD                           a figure of one point, as in pd-r1:c16-n48:ttft_ms.p50
    run:LEG:FIELD                             one of the run's other figures, as in run:pd-r1:kv_transfer.bytes
    goodput:LEG:LABEL:LIMITS                  good requests per second of one point
    cell:ARM:WORKLOAD:LOAD:FIELD              a mean over an arm's repeats at one load
    time:ARM:WORKLOAD:LOAD:PART               ms of a mean request, PART is queue, prefill, transfer, decode or unknown
    compare:WORKLOAD:LOAD:QUANTITY:A:B        arm A against arm B
    rate:ARM:WORKLOAD:LIMITS                  the highest rate that keeps the limits
    winner:WORKLOAD:LOAD:LIMITS[:ARM]         who wins at one load; with ARM, that arm's goodput there
    verdict:WORKLOAD:LIMITS                   the effect of a verdict

LOAD is c16 (requests in flight) or r4 (requests per second), LIMITS is ttft2000-tpot6-e2e9000 (ms; only those that are
set) or none. FIELD is a path into Point (or Report for `run`; pdlab/results/model.py), its steps joined by dots.

An id holds letters, digits and .:_-% alone, and does not begin with a dash. So it is the same inside an HTML attribute,
as an unquoted word of a shell, and on a terminal. Anything else in a name is percent-encoded (RFC 3986, as UTF-8).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote, unquote

from pdlab.evidence.model import LimitSet, Load

NO_LIMITS = "none"

_LOAD = re.compile(r"c(?P<concurrency>[0-9]+)|r(?P<rate>[0-9]+(\.[0-9]+)?)")
_LIMITS = re.compile(r"(?:ttft(?P<ttft_ms>[0-9.]+))?-?(?:tpot(?P<tpot_ms>[0-9.]+))?-?(?:e2e(?P<e2e_ms>[0-9.]+))?")
_LIMIT_FIELDS = ("ttft_ms", "tpot_ms", "e2e_ms")


class FigureIdError(ValueError):
    """A text is no figure's id. The message says what one looks like."""


@dataclass(frozen=True)
class PointFigure:
    """A figure of one point of one leg."""

    leg: str
    label: str
    field: str

    def __str__(self) -> str:
        return ":".join([_first(self.leg), _part(self.label), _part(self.field)])


@dataclass(frozen=True)
class RunFigure:
    """A figure of one leg that belongs to no point."""

    leg: str
    field: str

    def __str__(self) -> str:
        return _joined("run", self.leg, self.field)


@dataclass(frozen=True)
class GoodputFigure:
    """Requests per second of one point that kept every limit."""

    leg: str
    label: str
    limits: LimitSet

    def __str__(self) -> str:
        return _joined("goodput", self.leg, self.label, limits_word(self.limits))


@dataclass(frozen=True)
class CellFigure:
    """The mean over an arm's repeats at one load, with its interval."""

    arm: str
    workload: str
    load: Load
    field: str

    def __str__(self) -> str:
        return _joined("cell", self.arm, self.workload, load_word(self.load), self.field)


@dataclass(frozen=True)
class TimeFigure:
    """The part of a mean request's time that goes into one thing."""

    arm: str
    workload: str
    load: Load
    part: str

    def __str__(self) -> str:
        return _joined("time", self.arm, self.workload, load_word(self.load), self.part)


@dataclass(frozen=True)
class CompareFigure:
    """One quantity of arm `a` against arm `b` at one load."""

    workload: str
    load: Load
    quantity: str
    a: str
    b: str

    def __str__(self) -> str:
        return _joined("compare", self.workload, load_word(self.load), self.quantity, self.a, self.b)


@dataclass(frozen=True)
class RateFigure:
    """The highest rate at which an arm keeps the limits."""

    arm: str
    workload: str
    limits: LimitSet

    def __str__(self) -> str:
        return _joined("rate", self.arm, self.workload, limits_word(self.limits))


@dataclass(frozen=True)
class WinnerFigure:
    """Who wins at one load under limits; with `arm`, that arm's goodput there."""

    workload: str
    load: Load
    limits: LimitSet
    arm: str | None = None

    def __str__(self) -> str:
        arm = [] if self.arm is None else [self.arm]
        return _joined("winner", self.workload, load_word(self.load), limits_word(self.limits), *arm)


@dataclass(frozen=True)
class VerdictFigure:
    """The effect that a verdict rests on."""

    workload: str
    limits: LimitSet

    def __str__(self) -> str:
        return _joined("verdict", self.workload, limits_word(self.limits))


Figure = (
    PointFigure
    | RunFigure
    | GoodputFigure
    | CellFigure
    | TimeFigure
    | CompareFigure
    | RateFigure
    | WinnerFigure
    | VerdictFigure
)

KINDS = ("run", "goodput", "cell", "time", "compare", "rate", "winner", "verdict")


def point_figure(leg: str, label: str, field: str) -> str:
    """LEG:LABEL:FIELD, as in pd-r1:c16-n48:ttft_ms.p50."""
    return str(PointFigure(leg, label, field))


def run_figure(leg: str, field: str) -> str:
    """run:LEG:FIELD, as in run:pd-r1:kv_transfer.bytes."""
    return str(RunFigure(leg, field))


def goodput_figure(leg: str, label: str, limits: LimitSet) -> str:
    """goodput:LEG:LABEL:LIMITS."""
    return str(GoodputFigure(leg, label, limits))


def cell_figure(arm: str, workload: str, load: Load, field: str) -> str:
    """cell:ARM:WORKLOAD:LOAD:FIELD."""
    return str(CellFigure(arm, workload, load, field))


def time_figure(arm: str, workload: str, load: Load, part: str) -> str:
    """time:ARM:WORKLOAD:LOAD:PART."""
    return str(TimeFigure(arm, workload, load, part))


def compare_figure(workload: str, load: Load, quantity: str, a: str, b: str) -> str:
    """compare:WORKLOAD:LOAD:QUANTITY:A:B."""
    return str(CompareFigure(workload, load, quantity, a, b))


def rate_figure(arm: str, workload: str, limits: LimitSet) -> str:
    """rate:ARM:WORKLOAD:LIMITS."""
    return str(RateFigure(arm, workload, limits))


def winner_figure(workload: str, load: Load, limits: LimitSet, arm: str | None = None) -> str:
    """winner:WORKLOAD:LOAD:LIMITS, or winner:WORKLOAD:LOAD:LIMITS:ARM for the goodput of one arm."""
    return str(WinnerFigure(workload, load, limits, arm))


def verdict_figure(workload: str, limits: LimitSet) -> str:
    """verdict:WORKLOAD:LIMITS."""
    return str(VerdictFigure(workload, limits))


def load_word(load: Load) -> str:
    """A load as part of an id: c16, r4 or r0.5. ValueError when it has neither concurrency nor rate."""
    if load.concurrency is not None and load.loop == "closed":
        return f"c{load.concurrency}"
    if load.rate_s is not None and load.loop == "open":
        return f"r{_plain(load.rate_s)}"
    raise ValueError(f"a {load.loop} loop with concurrency {load.concurrency} and rate {load.rate_s} is no load")


def limits_word(limits: LimitSet) -> str:
    """Limits as part of an id: ttft2000-tpot6, or none."""
    values = ((name.removesuffix("_ms"), getattr(limits, name)) for name in _LIMIT_FIELDS)
    return "-".join(f"{name}{_plain(value)}" for name, value in values if value is not None) or NO_LIMITS


def looks_like_id(text: str) -> bool:
    """Whether a command's argument means a figure, not a run: it has colons, and is no path."""
    return ":" in text and "/" not in text


def parse(text: str) -> Figure:
    """The figure that an id names. Raises FigureIdError."""
    try:
        figure = _read(text.split(":"))
        if figure is not None and str(figure) == text:
            return figure
    except ValueError as error:
        raise FigureIdError(f"{_shown(text)} is no figure's id: {error}") from error
    if figure is not None:
        raise FigureIdError(f"{_shown(text)} is no figure's id; {figure} is one")
    raise FigureIdError(
        f"{_shown(text)} is no figure's id: write LEG:LABEL:FIELD, as in pd-r0:c16-n48:ttft_ms.p50, or copy one from a "
        f"report ({', '.join(f'{kind}:...' for kind in KINDS)})"
    )


def _read(parts: list[str]) -> Figure | None:
    kind, rest = parts[0], [unquote(part, errors="surrogatepass") for part in parts[1:]]
    match kind, rest:
        case "run", [leg, field]:
            return RunFigure(leg, field)
        case "goodput", [leg, label, limits]:
            return GoodputFigure(leg, label, _limits(limits))
        case "cell", [arm, workload, load, field]:
            return CellFigure(arm, workload, _load(load), field)
        case "time", [arm, workload, load, part]:
            return TimeFigure(arm, workload, _load(load), part)
        case "compare", [workload, load, quantity, a, b]:
            return CompareFigure(workload, _load(load), quantity, a, b)
        case "rate", [arm, workload, limits]:
            return RateFigure(arm, workload, _limits(limits))
        case "winner", [workload, load, limits]:
            return WinnerFigure(workload, _load(load), _limits(limits))
        case "winner", [workload, load, limits, arm]:
            return WinnerFigure(workload, _load(load), _limits(limits), arm)
        case "verdict", [workload, limits]:
            return VerdictFigure(workload, _limits(limits))
        case _, [label, field] if kind not in KINDS:
            return PointFigure(unquote(kind, errors="surrogatepass"), label, field)
    return None


def _load(word: str) -> Load:
    found = _LOAD.fullmatch(word)
    if found is None:
        raise ValueError(f"{_shown(word)} is no load; write c16 (requests in flight) or r4 (requests per second)")
    if found["concurrency"]:
        return Load(loop="closed", concurrency=int(found["concurrency"]))
    return Load(loop="open", rate_s=float(found["rate"]))


def _limits(word: str) -> LimitSet:
    if word == NO_LIMITS:
        return LimitSet()
    found = _LIMITS.fullmatch(word)
    if found is None or not any(found.groupdict().values()):
        raise ValueError(f"{_shown(word)} are no limits; write ttft2000-tpot6-e2e9000 (ms) or {NO_LIMITS}")
    return LimitSet(**{name: float(value) for name, value in found.groupdict().items() if value})


def _joined(kind: str, *parts: str) -> str:
    return ":".join([kind, *(_part(part) for part in parts)])


def _part(name: str) -> str:
    if not name:
        raise ValueError("a part of a figure's id is empty")
    # A tilde is left alone by RFC 3986, and expanded by shells. Any text has an id, file names that are not UTF-8 too.
    return quote(name, safe="", errors="surrogatepass").replace("~", "%7E")


def _first(name: str) -> str:
    """A leg's name at the beginning of an id: neither an option's dash nor one of the words for other figures."""
    part = _part(name)
    return f"%{ord(part[0]):02X}{part[1:]}" if part.startswith("-") or part in KINDS else part


def _plain(value: float) -> str:
    """A number without an exponent, and without a fraction when it has none; read back it is the same number."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} cannot stand in a figure's id")
    # abs: minus zero is zero.
    text = format(Decimal(repr(abs(float(value)))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shown(text: str) -> str:
    """A user's text in a message: at most a line of it, escaped as Python would."""
    return repr(text if len(text) <= 80 else text[:77] + "...")

"""The grammar of cron expressions: text goes in, five fields come out, or an error with a caret under what is wrong.

Read as Vixie's cron reads (crontab(5)), with `L` and `#` for days beside it; docs/reference/schedules.md has all of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from tenure import identity
from tenure.errors import InvalidScheduleError

LAST: Final = -1
"""Which of a month's Fridays `5L` means; the others are counted from 1."""

_MOST_CHARACTERS: Final = 256
_WORDS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}


class Rule(NamedTuple):
    """Say what a field may hold. `top` is the largest number that may be written, `high` the last that `*` covers."""

    name: str
    low: int
    high: int
    top: int
    names: tuple[str, ...] = ()


_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

MINUTE: Final = Rule("minute", 0, 59, 59)
HOUR: Final = Rule("hour", 0, 23, 23)
DAY: Final = Rule("day of month", 1, 31, 31)
MONTH: Final = Rule("month", 1, 12, 12, _MONTHS)
WEEKDAY: Final = Rule("day of week", 0, 6, 7, _WEEKDAYS)
_RULES: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class Piece(NamedTuple):
    """Be a part of an expression that knows where it stands, so that an error can point at it."""

    whole: str
    start: int
    text: str

    def part(self, start: int, end: int | None = None) -> Piece:
        """Give the part between two places, counted from the start of this one."""
        return Piece(self.whole, self.start + start, self.text[start:end])

    def split(self, separator: str) -> list[Piece]:
        """Give the parts between separators; there may be empty ones."""
        parts: list[Piece] = []
        start = 0
        for text in self.text.split(separator):
            parts.append(self.part(start, start + len(text)))
            start += len(text) + len(separator)
        return parts

    def refused(self, rule: Rule | None, why: str) -> InvalidScheduleError:
        """Give the error that names the field, says what is wrong, and shows where."""
        field = f"{rule.name}: " if rule else ""
        return InvalidScheduleError(f"cron expression: {field}{why}\n    {self.whole}\n    {' ' * self.start}^")


@dataclass(frozen=True, slots=True)
class Field:
    """Hold what one field allows.

    `starred` says that it begins with `*`. `values` are numbers (Sunday is 0), `before_last` days counted back from the
    last of the month, `nth` pairs of a weekday and which one of the month it is.
    """

    rule: Rule
    starred: bool
    values: frozenset[int]
    before_last: frozenset[int] = frozenset()
    nth: frozenset[tuple[int, int]] = frozenset()

    @property
    def is_all(self) -> bool:
        """Say whether it is as good as `*`."""
        return self.starred and len(self.values) > self.rule.high - self.rule.low

    @property
    def step(self) -> int:
        """Give n if it begins with `*/n`, 1 for `*` (the smallest that its values bear), 0 if it does not begin so."""
        if not self.starred:
            return 0
        return next(n for n in range(1, self.rule.high + 2) if self.values.issuperset(self._stepped(n)))

    @property
    def beside_step(self) -> list[int]:
        """Give the values in order, without those that its beginning `*/n` covers."""
        return sorted(self.values.difference(self._stepped(self.step) if self.starred else ()))

    @property
    def text(self) -> str:
        """Give the canonical spelling: the same for each spelling of the same field."""
        parts = [f"*/{self.step}" if self.step > 1 else "*"] if self.starred else []
        parts += _spelled(self.beside_step)
        parts += [f"L-{days}" if days else "L" for days in sorted(self.before_last)]
        parts += [f"{day}L" if which == LAST else f"{day}#{which}" for day, which in sorted(self.nth)]
        return ",".join(parts)

    def _stepped(self, step: int) -> range:
        return range(self.rule.low, self.rule.high + 1, step)


def parse(expression: object) -> tuple[Field, Field, Field, Field, Field]:
    """Read an expression as minute, hour, day of month, month and day of week.

    Raises `InvalidScheduleError`, which names the field and shows the expression with a caret under what is wrong.
    """
    whole = _checked_text(expression)
    written = re.search("[^ ].*", whole)
    if written and written[0].startswith("@"):
        whole = _of_word(Piece(whole, written.start(), written[0].rstrip()))
    pieces = pieces_of(whole)
    if len(pieces) != len(_RULES):
        raise _wrong_count(whole, pieces)
    minute, hour, day, month, weekday = (_field(rule, piece) for rule, piece in zip(_RULES, pieces, strict=True))
    return minute, hour, day, month, weekday


def pieces_of(expression: str) -> list[Piece]:
    """Give the fields of an expression, as they are written."""
    whole = expression.replace("\t", " ")
    return [Piece(whole, match.start(), match[0]) for match in re.finditer("[^ ]+", whole)]


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidScheduleError(
            f"cron expression must be a str; {identity.shown(value)} was given. Give '0 3 * * *', say."
        )
    text = str.__str__(value)
    if len(text) > _MOST_CHARACTERS:
        raise InvalidScheduleError(
            f"cron expression must hold at most {_MOST_CHARACTERS} characters; {identity.shown(text)} was given."
        )
    text = text.replace("\t", " ")
    strange = re.search(r"[^ -~]", text)
    if strange:
        shown = re.sub(r"[^ -~]", "\N{REPLACEMENT CHARACTER}", text)
        code = f"U+{ord(strange[0]):04X}"
        raise Piece(shown, strange.start(), "").refused(None, f"the character {code} has no meaning. Remove it.")
    return text


def _of_word(piece: Piece) -> str:
    word = piece.text.upper()
    if word == "@REBOOT":
        raise piece.refused(
            None, "@reboot is not a time. Register an INITIAL job, which runs once for all nodes, before they serve."
        )
    if word not in _WORDS:
        raise piece.refused(
            None, f"{piece.text} is not known. Write one of {', '.join(_WORDS).lower()}, or five fields."
        )
    return _WORDS[word]


def _wrong_count(whole: str, pieces: list[Piece]) -> InvalidScheduleError:
    order = "minute, hour, day of month, month, day of week"
    if len(pieces) > len(_RULES):
        many = f"{len(pieces)} fields were given, 5 are allowed: {order}. There are no seconds and no years"
        return pieces[len(_RULES)].refused(None, f"{many}; for periods below a minute there is Every.")
    missing = _RULES[len(pieces)]
    return Piece(whole, len(whole.rstrip()) + bool(pieces), "").refused(
        missing, f"missing; {len(pieces)} of 5 fields were given. Write {order}."
    )


def _field(rule: Rule, piece: Piece) -> Field:
    days = rule in (DAY, WEEKDAY)
    if days and piece.text == "?":
        piece = piece._replace(text="*")
    values: set[int] = set()
    before_last: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in piece.split(","):
        if rule is DAY and item.text[:1] in ("L", "l"):
            before_last.add(_before_last(item))
        elif rule is WEEKDAY and re.search("#|[^#]L$", item.text, re.IGNORECASE):
            nth.add(_nth(item))
        else:
            values.update(_least(rule, value) for value in _values(rule, item))
    return Field(rule, piece.text.startswith("*"), frozenset(values), frozenset(before_last), frozenset(nth))


def _values(rule: Rule, item: Piece) -> Collection[int]:
    body, *rest = item.split("/")
    if len(rest) > 1:
        raise rest[1]._replace(start=rest[1].start - 1).refused(rule, "a second step. Write one step an item.")
    step = _step(rule, rest[0]) if rest else 1
    if body.text == "*":
        return range(rule.low, rule.high + 1, step)
    if body.text.startswith("*"):
        raise body.part(1).refused(rule, f"after * only a step can stand, as in */2. {_allowed(rule)}")
    if "-" in body.text:
        first, last = _range(rule, body)
        return range(first, last + 1, step)
    first = _number(rule, body)
    return range(_least(rule, first), rule.high + 1, step) if rest else (first,)


def _least(rule: Rule, value: int) -> int:
    """Give 0 for Sunday's 7."""
    return value % 7 if rule is WEEKDAY else value


def _step(rule: Rule, piece: Piece) -> int:
    most = rule.high - rule.low
    if not re.fullmatch("[0-9]{1,9}", piece.text) or not 1 <= int(piece.text) <= most:
        raise piece.refused(
            rule,
            f"a step is a number of 1 to {most}, within one {_whole_of(rule)}; {piece.text or 'nothing'} was given.",
        )
    return int(piece.text)


def _whole_of(rule: Rule) -> str:
    return {MINUTE: "hour", HOUR: "day", DAY: "month", MONTH: "year", WEEKDAY: "week"}[rule]


def _range(rule: Rule, piece: Piece) -> tuple[int, int]:
    dash = piece.text.index("-")
    left, right = piece.part(0, dash), piece.part(dash + 1)
    first, last = _number(rule, left), _number(rule, right)
    if rule is WEEKDAY and last == 0 < first:
        last = 7  # FRI-SUN
    if first > last:
        top, bottom = (rule.names[-1], rule.names[0]) if left.text.isalpha() else (str(rule.high), str(rule.low))
        raise piece.refused(
            rule,
            f"the range {piece.text} runs backwards. "
            f"Write {left.text if first == rule.high else f'{left.text}-{top}'},{bottom}-{right.text}.",
        )
    return first, last


def _number(rule: Rule, piece: Piece) -> int:
    """Read a number or a name."""
    strange = re.search("[^0-9A-Za-z]", piece.text)
    if strange or not piece.text:
        at = strange.start() if strange else 0
        what = f"{strange[0]} has no meaning here" if strange else "something is missing here"
        raise piece.part(at).refused(rule, f"{what}. {_allowed(rule)}")
    if piece.text.upper() in rule.names:
        return rule.names.index(piece.text.upper()) + rule.low
    if not re.fullmatch("[0-9]{1,9}", piece.text):
        raise piece.refused(rule, f"{piece.text} is not known. {_allowed(rule)}")
    if not rule.low <= int(piece.text) <= rule.top:
        raise piece.refused(rule, f"{piece.text} is not within {rule.low} to {rule.top}. {_allowed(rule)}")
    return int(piece.text)


def _allowed(rule: Rule) -> str:
    names = f", {rule.names[0]} to {rule.names[-1]}" if rule.names else ""
    last = {DAY: ", L for the last", WEEKDAY: ", 5L for the last Friday, 5#2 for the second"}.get(rule, "")
    return f"Write numbers {rule.low} to {rule.top}{names}, lists a,b, ranges a-b, steps */n{last}."


def _before_last(item: Piece) -> int:
    match = re.fullmatch("L(?:-([0-9]{1,9}))?", item.text, re.IGNORECASE)
    if not match or not 0 <= int(match[1] or 0) <= 30:
        raise item.refused(
            DAY, f"{item.text} is not known. Write L for the last day, L-1 to L-30 for a day so many before it."
        )
    return int(match[1] or 0)


def _nth(item: Piece) -> tuple[int, int]:
    name, mark, which = item.text.partition("#")
    weekday = _number(WEEKDAY, item.part(0, len(name) if mark else -1)) % 7
    if mark and which not in ("1", "2", "3", "4", "5"):
        raise item.part(len(name) + 1).refused(
            WEEKDAY, f"a month has a 1st to a 5th of each day; #{which} was given. Write #1 to #5, or 5L for the last."
        )
    return weekday, int(which) if mark else LAST


def _spelled(values: list[int]) -> list[str]:
    step = progression(values)
    if step:
        return [f"{values[0]}-{values[-1]}/{step}"]
    return [f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs(values)]


def progression(values: list[int]) -> int:
    """Give the step between values, which are in order, if it is always the same and worth a word; else 0."""
    steps = {after - before for before, after in pairwise(values)}
    return steps.pop() if len(values) > 3 and len(steps) == 1 and steps != {1} else 0


def runs(values: list[int]) -> list[list[int]]:
    """Cut values, which are in order, where one does not follow the other."""
    found: list[list[int]] = []
    for value in values:
        if found and value == found[-1][-1] + 1:
            found[-1].append(value)
        else:
            found.append([value])
    return found

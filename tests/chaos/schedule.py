# SPDX-License-Identifier: Apache-2.0
"""What happens to the cluster, and when: the same schedules as schedule.cc makes.

schedule_golden.txt holds both to it. An event is a line of text, "1200 stop 2".
"""

from __future__ import annotations

from dataclasses import dataclass

RECORD_LIMIT = 256 << 10
SMALL_RECORD_LIMIT = 128 << 10
HASHED_SET = "hashed"

_MASK = (1 << 64) - 1
_QUIET_START_MS = 800
_CALM_MS = 2600
_CODES = (9, 11, 14, 18, 8, 22, 13, 2, 4, 80)
_CODES_AFTER = (9, 11, 14, 18, 22)
_CUTS = (0, 5, 8, 29, 30, 75, 40000)
_READS = ("get", "exists", "operate")
_WRITES = ("put", "touch", "remove")
_BATCHES = ("batch",)
_ROWS = ("batch_row",)
_CONTACTS = ("info", "login", "authenticate")
_KINDS = "info login authenticate get exists put touch remove operate batch batch_row query other"
_ORDER = _KINDS.split()
_REQUESTS = (
    _READS,
    _WRITES,
    _BATCHES,
    _ROWS,
    _CONTACTS,
    _READS + _BATCHES,
    tuple(kind for kind in _ORDER if kind not in _CONTACTS),
)
_DAMAGES = [
    "garbage_body",
    "garbage_frame",
    "flip_value_bit",
    "shorter_value",
    "longer_value",
    "wrong_bin_name",
    "wrong_particle",
    "op_size_over",
    "op_count_over",
    "op_count_under",
    "field_count_over",
    "frame_size_over",
    "frame_size_under",
    "frame_size_huge",
    "wrong_type",
    "index_out_of_range",
    "index_duplicate",
    "missing_row",
    "extra_row",
    "no_final_unit",
    "empty_frame",
]


def mix(z: int) -> int:
    """The last step of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Random:
    """SplitMix64, as in random.h."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        return mix(self._state)

    def below(self, bound: int) -> int:
        return self.next() % bound

    def between(self, first: int, last: int) -> int:
        return first + self.below(last - first + 1)

    def one_in(self, n: int) -> bool:
        return self.below(n) == 0


@dataclass(frozen=True)
class Recipe:
    """A schedule, and the cluster that it happens to."""

    seed: int = 1
    seconds: int = 10
    nodes: int = 3

    @property
    def has_users(self) -> bool:
        return self.seed % 3 == 1

    @property
    def has_tls(self) -> bool:
        return self.seed % 4 == 2

    @property
    def has_racks(self) -> bool:
        return self.seed % 5 == 0

    @property
    def replication(self) -> int:
        return 1 if self.seed % 7 == 3 else 2


@dataclass(frozen=True)
class Event:
    """One step."""

    at_ms: int
    verb: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([str(self.at_ms), self.verb, *self.arguments])


def make_schedule(recipe: Recipe) -> list[Event]:
    """In order of time."""
    return _Maker(recipe).make()


class _Maker:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._random = Random(mix(recipe.seed * 1000003 + recipe.nodes))
        self._tags = 0
        self._events: list[Event] = []

    def make(self) -> list[Event]:
        at = _QUIET_START_MS
        while at < self._recipe.seconds * 1000:
            happens = self._upheaval if self._random.below(5) < 3 else self._trouble
            length = happens(at)
            if self._random.one_in(3):
                self._trouble(at + self._random.below(300))
            at += length
            at += _CALM_MS if self._random.below(5) < 2 else self._random.between(50, 500)
        return sorted(self._events, key=lambda event: event.at_ms)

    def _add(self, at: int, verb: str, *arguments: object) -> None:
        self._events.append(Event(at, verb, tuple(map(str, arguments))))

    def _any_node(self) -> int:
        return self._random.below(self._recipe.nodes)

    def _ms(self, first: int, last: int) -> int:
        return self._random.between(first, last)

    def _upheaval(self, at: int) -> int:
        choice = self._random.below(11)
        one = {
            0: ("stop", "start", 600, 1500),
            1: ("stop", "start", 10, 150),
            2: ("pause", "resume", 40, 250),
            3: ("pause", "resume", 700, 1600),
        }
        if choice in one:
            return self._one_away(at, *one[choice])
        if choice == 10:
            if self._recipe.has_racks:
                return self._move_racks(at)
            return self._one_away(at, "stop", "start", 200, 700)
        others = {
            4: lambda: self._two_away(at, "stop", "start"),
            5: lambda: self._two_away(at, "pause", "resume"),
            6: lambda: self._all_away(at),
            7: lambda: self._rolling(at),
            8: lambda: self._frozen_dies(at),
            9: lambda: self._grow_and_shrink(at),
        }
        return others[choice]()

    def _away(self, at: int, go: str, come: str, node: int, length: int) -> int:
        self._add(at, go, node)
        self._add(at + length, come, node)
        return length

    def _one_away(self, at: int, go: str, come: str, shortest: int, longest: int) -> int:
        length = self._ms(shortest, longest)
        return self._away(at, go, come, self._any_node(), length)

    def _two_away(self, at: int, go: str, come: str) -> int:
        first = self._any_node()
        second = (first + 1 + self._random.below(self._recipe.nodes - 1)) % self._recipe.nodes
        between = self._ms(0, 30) if self._random.one_in(2) else self._ms(500, 900)
        length = self._away(at, go, come, first, self._ms(600, 1400))
        later = self._away(at + between, go, come, second, self._ms(600, 1400))
        return max(length, between + later)

    def _all_away(self, at: int) -> int:
        length = self._ms(200, 900)
        for node in range(self._recipe.nodes):
            late = self._ms(0, 40)
            self._away(at + late, "stop", "start", node, length + self._ms(50, 250))
        return length + 250

    def _rolling(self, at: int) -> int:
        pause = self._ms(300, 900)
        for node in range(self._recipe.nodes):
            self._away(at, "stop", "start", node, 300)
            at += 300 + pause
        return self._recipe.nodes * (300 + pause)

    def _frozen_dies(self, at: int) -> int:
        node = self._any_node()
        frozen = self._ms(30, 600)
        self._add(at, "pause", node)
        return frozen + self._away(at + frozen, "stop", "start", node, self._ms(100, 900))

    def _grow_and_shrink(self, at: int) -> int:
        go = "remove" if self._random.one_in(2) else "stop"
        return self._away(at, "start", go, self._recipe.nodes, self._ms(600, 2000))

    def _move_racks(self, at: int) -> int:
        for node in range(self._recipe.nodes):
            self._add(at, "rack", node, self._random.below(3))
        return 500

    def _trouble(self, at: int) -> int:
        length = self._ms(300, 1200)
        node = -1 if self._random.one_in(4) else self._any_node()
        choice = self._random.below(12)
        if choice == 0:
            self._add(at, "limit", SMALL_RECORD_LIMIT)
            self._add(at + length, "limit", RECORD_LIMIT)
            return length
        if choice == 1:
            speed = self._random.between(1, 20) * 1_000_000
            return self._change(at, length, "link", node, speed)
        if choice == 2:
            latency = self._random.between(1, 200) * 1_000
            return self._change(at, length, "latency", node, latency)
        if choice == 3:
            return self._change(at, length, "stop_writes", node, 1)
        if choice == 4 and self._recipe.has_users:
            return self._trouble_with_users(at, length)
        if choice == 5 and self._recipe.has_tls:
            self._add(at, "rotate")
            return 100
        return self._requests_fail(at)

    def _change(self, at: int, length: int, verb: str, node: int, value: int) -> int:
        self._add(at, verb, node, value)
        self._add(at + length, verb, node, 0)
        return length

    def _trouble_with_users(self, at: int, length: int) -> int:
        if self._random.one_in(2):
            self._add(at, "user", 0)
            self._add(at + length, "user", 1)
            return length
        self._add(at, "expire")
        return 100

    def _requests_fail(self, at: int) -> int:
        length = self._ms(150, 900)
        self._tags += 1
        tag = self._tags
        node = -1 if self._random.one_in(3) else self._any_node()
        kinds = _REQUESTS[self._random.below(len(_REQUESTS))]
        action = self._action(rows_only=kinds == _ROWS)
        skip = self._random.below(20)
        count = 0 if self._random.one_in(2) else self._random.between(1, 30)
        seed = self._random.below(1000)
        if "damage" in action:
            action["seed"] = str(seed)
        named = sorted(kinds, key=_ORDER.index)
        head = {
            "node": str(node),
            "action": action.pop("action"),
            "kinds": ",".join(named),
            "skip": str(skip),
            "count": str(count),
        }
        place = action.pop("set", None)
        fields = {**head, **action, **({"set": place} if place else {})}
        self._add(at, "fault", tag, *(f"{name}={value}" for name, value in fields.items()))
        self._add(at + length, "unfault", tag)
        return length

    def _action(self, *, rows_only: bool) -> dict[str, str]:
        choice = self._random.below(3 if rows_only else 8)
        if choice == 0:
            code = _CODES[self._random.below(len(_CODES))]
            return {"action": "result_code", "code": str(code)}
        if choice == 1:
            code = _CODES_AFTER[self._random.below(len(_CODES_AFTER))]
            return {"action": "result_after_execute", "code": str(code)}
        if choice in (2, 3):
            return {"action": ("drop", "drop_answer")[choice - 2]}
        if choice == 4:
            at_once = self._random.one_in(2)
            cut = _CUTS[self._random.below(len(_CUTS))]
            return {"action": "close"} if at_once else self._cut(cut)
        if choice in (5, 6):
            delay = self._random.between(1, 400)
            return {"action": ("delay", "latency")[choice - 5], "delay_ms": str(delay)}
        return self._damage()

    @staticmethod
    def _cut(count: int) -> dict[str, str]:
        return {"action": "close_after_bytes", "bytes": str(count)}

    def _damage(self) -> dict[str, str]:
        damage = _DAMAGES[self._random.below(len(_DAMAGES))]
        size = 1 if self._random.one_in(2) else self._random.between(2, 100000)
        fields = {"action": "damage", "damage": damage, "bytes": str(size)}
        if damage == "flip_value_bit":
            fields["set"] = HASHED_SET
        return fields

"""How many of each kind go to each place, so that most is kept.

In: kinds and places with how many there are of each, and what one of a kind is worth in a place.
Out: the numbers that give the greatest sum. Knows nothing of what they stand for.

Again and again the best path is found from a kind that has some left to a place with room, which
may move on what an earlier path has sent, and as many as it bears are sent along (successive best
paths, each by Bellman-Ford). Kinds and places are few, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence

Table = list[list[int]]


def greatest(kinds: Sequence[int], places: Sequence[int], worth: Sequence[Sequence[int]]) -> Table:
    """sent[kind][place]; `kinds` and `places` have the same sum, and all are sent."""
    assert sum(kinds) == sum(places), f"{sum(kinds)} for {sum(places)} places"
    left, room = list(kinds), list(places)
    sent = [[0] * len(places) for _ in kinds]
    while any(left):
        path = _best_path(left, room, sent, worth)
        ahead = list(zip(path[::2], path[1::2], strict=True))
        back = list(zip(path[2::2], path[1::2], strict=False))
        bears = min(left[path[0]], room[path[-1]], *(sent[kind][place] for kind, place in back))
        for kind, place in ahead:
            sent[kind][place] += bears
        for kind, place in back:
            sent[kind][place] -= bears
        left[path[0]] -= bears
        room[path[-1]] -= bears
    return sent


def _best_path(
    left: Sequence[int], room: Sequence[int], sent: Table, worth: Sequence[Sequence[int]]
) -> list[int]:
    """kind, place, kind, place, ...: ahead from a kind to a place, back from a place to a kind that
    had been sent there."""
    to_kind = {kind: 0 for kind, number in enumerate(left) if number}
    from_place: dict[int, int] = {}
    to_place: dict[int, int] = {}
    from_kind: dict[int, int] = {}
    changed = set(to_kind)
    while changed:
        reached = set()
        for kind in sorted(changed):
            for place, value in enumerate(worth[kind]):
                if to_kind[kind] + value > to_place.get(place, -1):
                    to_place[place] = to_kind[kind] + value
                    from_kind[place] = kind
                    reached.add(place)
        changed = set()
        for place in sorted(reached):
            for kind, row in enumerate(sent):
                value = to_place[place] - worth[kind][place]
                if row[place] and value > to_kind.get(kind, value - 1):
                    to_kind[kind] = value
                    from_place[kind] = place
                    changed.add(kind)
    end = max((place for place, free in enumerate(room) if free), key=lambda p: (to_place[p], -p))
    return _back_from(end, from_kind, from_place)


def _back_from(place: int, from_kind: dict[int, int], from_place: dict[int, int]) -> list[int]:
    path = [place]
    while True:
        path.append(from_kind[path[-1]])
        if path[-1] not in from_place:
            return path[::-1]
        path.append(from_place[path[-1]])

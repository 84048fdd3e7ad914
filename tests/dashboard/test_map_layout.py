"""Where services and edges stand on the map."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tailscope_dashboard._map_layout import BOX, Layout, lay_out

if TYPE_CHECKING:
    from random import Random

NAMES = st.sampled_from([f"s{number}" for number in range(9)])
EDGES = st.lists(st.tuples(NAMES, NAMES), max_size=24, unique=True)


def columns(layout: Layout) -> list[list[str]]:
    """Return the services of each layer, from the left, each from above."""
    lefts = sorted({x for x, _ in layout.services.values()})
    return [
        sorted(
            (name for name, (x, _) in layout.services.items() if x == left),
            key=lambda n: layout.services[n][1],
        )
        for left in lefts
    ]


def test_callees_stand_right_of_all_their_callers() -> None:
    layout = lay_out("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")])

    assert columns(layout) == [["a"], ["b"], ["c"], ["d"]]


def test_an_edge_goes_round_the_services_that_it_passes() -> None:
    layout = lay_out("abc", [("a", "b"), ("b", "c"), ("a", "c")])

    top = layout.services["b"][1]
    passing = [y for _, y in layout.edges["a", "c"][1:-1]]
    assert len(passing) == 2
    assert all(y < top or y > top + BOX[1] for y in passing)


def test_services_that_call_each_other_are_both_drawn() -> None:
    layout = lay_out("ab", [("a", "b"), ("b", "a"), ("a", "a")])

    assert columns(layout) == [["a"], ["b"]]
    assert set(layout.edges) == {("a", "b"), ("b", "a")}


def test_callees_stand_in_the_order_of_their_callers() -> None:
    layout = lay_out(
        ["top", "x", "y", "of-x", "of-y"], [("top", "x"), ("top", "y"), ("y", "of-y"), ("x", "of-x")]
    )

    assert columns(layout)[1:] == [["x", "y"], ["of-x", "of-y"]]


def test_a_long_chain_is_no_recursion() -> None:
    names = [f"{number:05d}" for number in range(1500)]

    layout = lay_out(names, pairwise(names))

    assert len(columns(layout)) == 1500


def test_nothing_is_a_map_without_services() -> None:
    assert lay_out([], []).services == {}


@given(edges=EDGES)
def test_no_two_services_overlap_and_every_edge_is_placed(edges: list[tuple[str, str]]) -> None:
    names = {name for edge in edges for name in edge}

    layout = lay_out(names, edges)

    places = sorted(layout.services.values())
    assert all(
        abs(one[0] - other[0]) >= BOX[0] or abs(one[1] - other[1]) >= BOX[1]
        for at, one in enumerate(places)
        for other in places[at + 1 :]
    )
    assert set(layout.edges) == {edge for edge in edges if edge[0] != edge[1]} == set(layout.labels)
    assert all(0 <= x <= layout.width - BOX[0] and 0 <= y <= layout.height - BOX[1] for x, y in places)


@given(edges=EDGES, seed=st.randoms(use_true_random=False))
def test_the_order_of_edges_does_not_matter(edges: list[tuple[str, str]], seed: Random) -> None:
    shuffled = list(edges)
    seed.shuffle(shuffled)
    names = [name for edge in edges for name in edge]
    assert lay_out(names, edges) == lay_out(reversed(names), shuffled)

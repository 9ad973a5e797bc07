"""As much as can flows, and nothing is cheaper."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from millstream.group.cheapest_flow import CheapestFlow

EDGES = ((0, 1), (0, 2), (1, 2), (2, 1), (1, 3), (2, 3))
"""A network of four nodes, from the first to the last."""


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=len(EDGES), max_size=len(EDGES)),
)
def test_the_cheapest_of_all_largest_flows_is_found(given_: list[tuple[int, int]]) -> None:
    """All flows are tried."""
    flow = CheapestFlow()
    nodes = [flow.node() for _ in range(4)]
    numbers = [
        flow.edge(nodes[start], nodes[end], most, cost)
        for (start, end), (most, cost) in zip(EDGES, given_, strict=True)
    ]

    def worth(amounts: tuple[int, ...]) -> tuple[int, int] | None:
        """How much flows, and what it saves; None: it does not flow."""
        for node in (1, 2):
            into = sum(amount for amount, edge in zip(amounts, EDGES, strict=True) if edge[1] == node)
            out = sum(amount for amount, edge in zip(amounts, EDGES, strict=True) if edge[0] == node)
            if into != out:
                return None
        cost = sum(amount * each[1] for amount, each in zip(amounts, given_, strict=True))
        return sum(amounts[:2]), -cost

    every = (worth(amounts) for amounts in product(*(range(most + 1) for most, _ in given_)))
    best = max(each for each in every if each is not None)
    amount, cost = flow.run(nodes[0], nodes[3])
    assert (amount, -cost) == best
    assert worth(tuple(flow.amount(number) for number in numbers)) == best

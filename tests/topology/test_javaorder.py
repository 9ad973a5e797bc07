"""Java's order of things, as Java 17 itself gave it."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.topology.javaorder import TreeSet, hash_order


def test_hash_order_is_that_of_a_java_hash_set():
    """What `new HashSet<>(List.of(…))` prints, with colliding keys ("Aa" and "BB") in it."""
    words = ["orders", "payments", "returns", "BB", "Aa", "a", "b", "c"]
    java = "BB, Aa, a, b, c, payments, orders, returns"
    assert ", ".join(hash_order(words, len(words))) == java


def compare(one, other):
    return one - other


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers()))
def test_a_tree_set_under_an_order_that_stands_still_is_sorted(values):
    """Each once."""
    tree = TreeSet(compare)
    for value in values:
        tree.add(value)
    assert list(tree) == sorted(set(values))

"""How a task's DataFrame is built, as a value: what is visited when, and what waits together."""

import random
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import FIVE, both, random_program, replay, same
from tiers import examples

from millstream.dsl.emission import BufferConfig, Suppressed
from millstream.dsl.options import Consumed, Materialized
from millstream.dsl.store_suppliers import Stores
from millstream.errors import TopologyException
from millstream.physical.kernel_joins import Side, links_of
from millstream.physical.plan import Linked, Operator, Visit, needed_by, plan_task
from millstream.physical.task_stores import TaskStores, has_state
from millstream.processors.api import Processor
from millstream.serdes.serdes import Serdes
from millstream.topology.topology import Topology

DAY = timedelta(days=1)


class Nothing(Processor):
    def process(self, record):
        pass


def plans(builder):
    return [plan_task(pipeline) for pipeline in builder.build().pipelines]


def said(plan):
    """Visits as names, operators as lists, programs as tuples."""
    return [_said(step) for step in plan.steps]


def _said(step):
    match step:
        case Visit(node):
            return node.name
        case Linked(processors):
            return tuple(node.name for node in processors)
        case Operator(items):
            return [f"{_kind(item)} {item.name}" for item in items]


def _kind(item):
    if isinstance(item, Side):
        return "left of" if item.is_left else "right of"
    return type(item).__name__


def stores_of(plan):
    stores = TaskStores("app")
    for step in plan.steps:
        for item in step.items if isinstance(step, Operator) else ():
            stores.of_item(item)
    return stores.all()


def test_a_count_waits_until_its_stream_is_there(builder):
    """What is behind it comes after its operator."""
    builder.stream("in").group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    (plan,) = plans(builder)
    assert said(plan) == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-AGGREGATE-0000000001",
        ["Aggregate KSTREAM-AGGREGATE-0000000001"],
        "KTABLE-TOSTREAM-0000000002",
        "KSTREAM-SINK-0000000003",
    ]
    (store,) = stores_of(plan)
    assert (store.name, store.changelog) == ("counts", "app-counts-changelog")
    assert (store.derived, store.versioned, store.in_memory) == (False, False, False)


def test_joins_with_one_table_share_what_they_keep_of_it(builder):
    """Its rows follow from its topic, which is the changelog."""
    table = builder.table("two")
    builder.stream("one").join(table, both, named="j").to("out")
    builder.stream("three").left_join(table, both, named="k").to("other")
    (plan,) = plans(builder)
    assert ["right of j", "StreamTableJoin j", "StreamTableJoin k"] in said(plan)
    assert len(set(plan.sides.values())) == 1
    (store,) = stores_of(plan)
    assert (store.name, store.changelog) == ("two-STATE-STORE-0000000000-looked-up", "")
    assert store.derived


def test_a_join_behind_a_join_has_rows_of_its_own(builder):
    """Two operators cannot share them."""
    table = builder.table("two")
    joined = builder.stream("one").join(table, both, named="j")
    joined.group_by_key().reduce(both).to_stream().join(table, both, named="k").to("out")
    (plan,) = plans(builder)
    assert [side.number for sides in plan.sides.values() for side in sides] == [0, 1]
    assert [store.name[-9:] for store in stores_of(plan) if "looked-up" in store.name] == [
        "looked-up",
        "ooked-up1",
    ]


def test_joined_rows_in_a_store_go_on_behind_it(builder):
    """Only the store knows what was there before."""
    one, two = builder.table("one"), builder.table("two")
    joined = one.join(two, both, Materialized.as_("both"), named="j")
    joined.filter(same, Materialized.as_("few")).to_stream().to("out")
    (plan,) = plans(builder)
    assert said(plan)[2:7] == [
        "j",
        ["left of j", "right of j", "TableJoin j"],
        ["ToTable j"],
        "KTABLE-FILTER-0000000009",
        ["ToTable KTABLE-FILTER-0000000009"],
    ]
    assert [store.name for store in stores_of(plan)] == ["both-left", "both-right", "both", "few"]


def test_a_store_behind_which_only_a_stream_comes_is_filled_beside_it(builder):
    """The stream needs no row of it, so nothing waits for its operator."""
    builder.stream("in").to_table(Materialized.as_("last")).to_stream().to("out")
    (plan,) = plans(builder)
    assert said(plan)[-1] == ["ToTable KSTREAM-TOTABLE-0000000001"]
    assert not plan.stands_for


def test_a_suppress_right_behind_an_aggregation_is_in_its_operator(builder):
    """It holds back the updates as they are; one behind it is an operator of its own."""
    limit = Suppressed.until_time_limit(timedelta(0), BufferConfig.unbounded())
    counted = builder.stream("in").group_by_key().count()
    counted.suppress(limit).suppress(limit).to_stream().to("out")
    (plan,) = plans(builder)
    first, second = (step for step in plan.steps if isinstance(step, Operator))
    (aggregate,), (suppress,) = first.items, second.items
    (held_back,) = plan.held_back[aggregate]
    assert suppress.parents == (held_back,)
    assert held_back not in [step.node for step in plan.steps if isinstance(step, Visit)]


def test_processors_that_share_a_store_are_one_program(builder):
    """It is built when the inputs of all of them are there."""

    shared = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("shared"), Serdes.string(), Serdes.string()
    )
    builder.add_state_store(shared)
    counted = builder.stream("one").group_by_key().count().to_stream()
    builder.stream("two").process(Nothing, "shared", named="first").to("out")
    counted.process(Nothing, "shared", named="second").to("counted")
    (plan,) = plans(builder)
    steps = said(plan)
    assert steps.index(("first", "second")) > steps.index("second") > steps.index("first")
    assert steps.index("second") > next(place for place, step in enumerate(steps) if isinstance(step, list))


def test_a_topic_between_processors_that_share_a_store_is_read_before_it_is_written(builder):
    """They are one program, which is built when the inputs of all of them are there."""
    shared = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("shared"), Serdes.string(), Serdes.string()
    )
    builder.add_state_store(shared)
    first = builder.stream("in").process(Nothing, "shared", named="first")
    first.repartition(named="r").process(Nothing, "shared", named="second").to("out")
    (plan,) = plans(builder)
    steps = said(plan)
    read, written = (place for place, step in enumerate(steps) if step == "r-repartition-source")
    assert read < steps.index(("first", "second")) < written


def test_a_topic_that_is_written_and_read_is_read_with_the_serdes_it_is_written_with(builder):
    """So it is written first: its steps are visited twice."""
    stream = builder.stream("in")
    stream.merge(stream.repartition(named="r")).to("out")
    (plan,) = plans(builder)
    (written,) = plan.written_back
    visited = [step.node for step in plan.steps]
    assert visited.index(written) < visited.index(written.repartition)


def test_a_cogroup_waits_as_one_item(builder):
    """Its streams are there before."""
    one, two = (builder.stream(topic).group_by_key() for topic in ("one", "two"))
    cogrouped = one.cogroup(lambda key, value, count: count + 1)
    cogrouped = cogrouped.cogroup(two, lambda key, value, count: count + 2)
    cogrouped.aggregate(lambda: 0, Materialized.as_("both")).to_stream().to("out")
    (plan,) = plans(builder)
    assert said(plan)[:4] == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-SOURCE-0000000001",
        "COGROUPKSTREAM-MERGE-0000000004",
        ["Cogroup COGROUPKSTREAM-MERGE-0000000004"],
    ]


def test_a_foreign_key_join_keeps_its_left_rows_once(builder):
    """For what it asks the right side, and for the answers; the right side keeps its own."""
    left, right = builder.table("left"), builder.table("right")
    left.join(right, same, both, named="j").to_stream().to("out")
    ours, theirs = plans(builder)
    operator, lookup = (
        next(step for step in each.steps if isinstance(step, Operator)) for each in (ours, theirs)
    )
    assert _said(operator) == [
        "left of j-subscription-registration-processor",
        "ForeignKeySubscribe j-subscription-registration-processor",
        "ForeignKeyJoin j-result",
    ]
    assert _said(lookup) == [
        "right of j-subscription-join-foreign",
        "ForeignKeyLookup j-subscription-join-foreign",
    ]


def test_a_foreign_key_join_of_a_table_with_a_history_is_refused(builder):
    """Such joins use the latest rows alone."""
    versioned = Materialized.as_(Stores.persistent_versioned_key_value_store("rows", DAY))
    left = builder.table("left", Consumed(), versioned)
    left.join(builder.table("right"), same, both, named="j").to_stream().to("out")
    with pytest.raises(TopologyException, match="leave out with_history"):
        plans(builder)


@pytest.mark.parametrize(
    ("logged", "derived"), [(True, True), (False, False)], ids=["logged", "without a changelog"]
)
def test_a_side_follows_from_its_table_if_that_comes_back(builder, logged, derived):
    """Otherwise it is on the disk of its task alone."""
    store = Materialized.as_("counts")
    counted = builder.stream("in").group_by_key().count(store if logged else store.with_logging_disabled())
    builder.stream("one").join(counted, both, named="j").to("out")
    (plan,) = plans(builder)
    (side,) = [store for store in stores_of(plan) if store.name == "counts-looked-up"]
    assert side.derived == derived


def test_a_stream_join_logs_both_sides_and_what_waits_for_a_match(builder):
    """The third store is Kafka Streams' alone: here each record knows whether it waits."""
    builder.stream("one").left_join(builder.stream("two"), both, FIVE, named="j").to("out")
    (plan,) = plans(builder)
    assert {store.name: store.changelog for store in stores_of(plan)} == {
        "KSTREAM-JOINTHIS-0000000004-store": "app-KSTREAM-JOINTHIS-0000000004-store-changelog",
        "KSTREAM-OUTEROTHER-0000000005-store": "app-KSTREAM-OUTEROTHER-0000000005-store-changelog",
        "KSTREAM-OUTERSHARED-0000000004-store": "app-KSTREAM-OUTERSHARED-0000000004-store-changelog",
    }


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_each_step_has_what_it_needs(seed, size, joins):
    """Each node is visited once, behind all that it needs; each item is in one operator, behind its links."""
    topology = Topology(replay(random_program(random.Random(seed), size, joins=joins))._drafts.build())
    for plan in map(plan_task, topology.pipelines):
        visited = Counter(step.node for step in plan.steps if isinstance(step, Visit))
        held_back = {node for nodes in plan.held_back.values() for node in nodes}
        assert set(visited) == set(plan.nodes) - held_back
        assert set(visited.values()) <= {1}
        waiting = {item for step in plan.steps if isinstance(step, Operator) for item in step.items}
        built = set()
        for step in plan.steps:
            if isinstance(step, Visit):
                is_input = step.node in plan.pipeline.inputs
                for needed in () if is_input else needed_by(plan.pipeline, step.node):
                    assert needed in visited
                    assert needed not in waiting or needed in built
                    assert not {each for each, of in plan.stands_for.items() if of is needed} - built
            elif isinstance(step, Operator):
                assert not built & set(step.items)
                states = [has_state(item) for item in step.items]
                assert states == sorted(states, reverse=True)
                for item in step.items:
                    assert set(links_of(item, plan.sides).values()) <= set(step.items)
                built.update(step.items)
        assert built == waiting

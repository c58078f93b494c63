"""Structured control flow from a graph of next nodes.

p4c flattens a control's `if`s into nodes that name their successors. Here they become regions again:
sequences of steps whose arms end where the successors meet, at the node's immediate post-dominator.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

N = TypeVar("N")
M = TypeVar("M")
K = TypeVar("K", bound=Hashable)


class LoopError(ValueError):
    """The graph has a cycle."""


@dataclass(frozen=True, slots=True)
class Step(Generic[N]):
    """A node, and one region per successor; no arms when all successors are the next step."""

    node: N
    arms: tuple["Region[N]", ...] = ()


@dataclass(frozen=True, slots=True)
class Region(Generic[N]):
    steps: tuple[Step[N], ...] = ()

    def nodes(self) -> Iterator[N]:
        """Every node of the region and of the arms inside it."""
        for step in self.steps:
            yield step.node
            for arm in step.arms:
                yield from arm.nodes()

    def map(self, convert: Callable[[N], M]) -> "Region[M]":
        """The same shape with every node converted."""
        return Region(
            tuple(Step(convert(step.node), tuple(arm.map(convert) for arm in step.arms)) for step in self.steps)
        )


def structure(start: K | None, successors: Callable[[K], Sequence[K | None]]) -> Region[K]:
    """The region of the graph that starts at `start`; None is the end. A node that several arms reach
    without meeting there is repeated in each of them.

    Raises LoopError when a node can reach itself.
    """
    order = _reverse_postorder(start, successors)
    meets = _immediate_post_dominators(order, successors)

    def region(node: K | None, end: K | None) -> Region[K]:
        steps = []
        while node is not None and node != end:
            targets = successors(node)
            meet = meets[node]
            if all(target == meet for target in targets):
                steps.append(Step(node))
            else:
                steps.append(Step(node, tuple(region(target, meet) for target in targets)))
            node = meet
        return Region(tuple(steps))

    return region(start, None)


def _reverse_postorder(start: K | None, successors: Callable[[K], Sequence[K | None]]) -> list[K]:
    if start is None:
        return []
    order: list[K] = []
    open_nodes, done = {start}, set[K]()
    stack = [(start, iter(successors(start)))]
    while stack:
        node, targets = stack[-1]
        target = next((item for item in targets if item is not None and item not in done), None)
        if target is None:
            stack.pop()
            open_nodes.discard(node)
            done.add(node)
            order.append(node)
        elif target in open_nodes:
            raise LoopError(str(target))
        else:
            open_nodes.add(target)
            stack.append((target, iter(successors(target))))
    order.reverse()
    return order


def _immediate_post_dominators(order: list[K], successors: Callable[[K], Sequence[K | None]]) -> dict[K, K | None]:
    """Cooper, Harvey and Kennedy's intersection on the post-dominator tree: one pass, as there are no loops."""
    rank = {node: place for place, node in enumerate(order)}
    meets: dict[K, K | None] = {}

    def intersect(a: K | None, b: K | None) -> K | None:
        while a is not None and b is not None and a != b:
            if rank[a] < rank[b]:
                a = meets[a]
            else:
                b = meets[b]
        return a if a == b else None

    for node in reversed(order):
        targets = successors(node)
        meet = targets[0]
        for target in targets[1:]:
            meet = intersect(meet, target)
        meets[node] = meet
    return meets

"""Action profiles: what the entries of a table share, as P4Runtime programs it and PI enforces it.

A profile is programmed with members and groups, or with one-shot action sets, never with both at a time. Its size is
not enforced, as on BMv2.
"""

from heapq import heappop, heappush
from typing import NoReturn, TypeAlias

from finsy.proto import rpc_code

from switch_model.ir import ActionCall
from switch_model.ir import Profile as ProfileSpec
from switch_model.status import StatusError
from switch_model.tables import Choice

WeightedCall: TypeAlias = tuple[ActionCall, int]


class Member(Choice):
    """An action that entries and groups share by its id."""

    __slots__ = ("handles", "id", "weights")

    def __init__(self, member_id: int, call: ActionCall) -> None:
        super().__init__([call])
        self.id = member_id
        self.weights: dict[int, int] = {}  # by the id of the group
        self.handles: list[int] = []

    @property
    def call(self) -> ActionCall:
        return self.members[0]

    @property
    def copies(self) -> int:
        """What PI makes of it on BMv2, each with a handle: as many as the greatest of its weights."""
        return max(self.weights.values(), default=1)


class Group(Choice):
    """Members with weights; a hash picks one of them for a packet. May be empty."""

    __slots__ = ("id", "max_size", "weights")

    def __init__(self, group_id: int, max_size: int) -> None:
        super().__init__([])
        self.id = group_id
        self.max_size = max_size  # of the sum of the weights; 0: any
        self.weights: dict[int, int] = {}  # by the id of the member


class ActionSet(Choice):
    """The one-shot of one entry: actions with weights, in order."""

    __slots__ = ("_profile", "actions")

    def __init__(self, profile: "Profile", actions: tuple[WeightedCall, ...]) -> None:
        super().__init__([call for call, weight in actions for _ in range(weight)])
        self.actions = actions
        self._profile = profile

    def use(self) -> None:
        super().use()
        self._profile.one_shots += 1

    def release(self) -> None:
        super().release()
        self._profile.one_shots -= 1


class Profile:
    """The members and groups of one device's action profile. What can't be done raises StatusError."""

    def __init__(self, spec: ProfileSpec) -> None:
        self.name = spec.name.rpartition(".")[2]
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.one_shots = 0  # entries with one
        self._handles = _Handles()

    def one_shot(self, actions: tuple[WeightedCall, ...]) -> ActionSet:
        """The action set for an entry."""
        if self.members or self.groups:
            self._fail(
                rpc_code.INVALID_ARGUMENT, "has members or groups, one-shot action sets can't be mixed with them"
            )
        return ActionSet(self, actions)

    def member_for_entry(self, member_id: int) -> Member:
        """What an entry is to refer to."""
        return self.members.get(member_id) or self._fail(rpc_code.INVALID_ARGUMENT, f"no member {member_id}")

    def group_for_entry(self, group_id: int) -> Group:
        """What an entry is to refer to; a group that has members."""
        group = self.groups.get(group_id) or self._fail(rpc_code.INVALID_ARGUMENT, f"no group {group_id}")
        if not group.members:
            self._fail(rpc_code.FAILED_PRECONDITION, f"group {group_id} is empty")
        return group

    def member(self, member_id: int) -> Member:
        self._refuse_with_one_shots()
        return self.members.get(member_id) or self._fail(rpc_code.NOT_FOUND, f"no member {member_id}")

    def insert_member(self, member_id: int, call: ActionCall) -> None:
        self._refuse_with_one_shots()
        if member_id in self.members:
            self._fail(rpc_code.ALREADY_EXISTS, f"member {member_id} exists, use MODIFY to change it")
        member = self.members[member_id] = Member(member_id, call)
        self._handles.resize(member.handles, member.copies)

    def modify_member(self, member_id: int, call: ActionCall) -> None:
        member = self.member(member_id)
        member.members[0] = call
        for group_id in member.weights:
            self._order(self.groups[group_id])

    def delete_member(self, member_id: int) -> None:
        member = self.member(member_id)
        if member.uses or member.weights:
            user = f"group {next(iter(member.weights))}" if member.weights else "a table entry"
            self._fail(rpc_code.FAILED_PRECONDITION, f"member {member_id} is used by {user}")
        self._handles.resize(member.handles, 0)
        del self.members[member_id]

    def group(self, group_id: int) -> Group:
        self._refuse_with_one_shots()
        return self.groups.get(group_id) or self._fail(rpc_code.NOT_FOUND, f"no group {group_id}")

    def insert_group(self, group_id: int, max_size: int, weights: dict[int, int]) -> None:
        self._refuse_with_one_shots()
        if group_id in self.groups:
            self._fail(rpc_code.ALREADY_EXISTS, f"group {group_id} exists, use MODIFY to change it")
        self._check_members(weights)
        group = self.groups[group_id] = Group(group_id, max_size)
        self._set_weights(group, weights)

    def modify_group(self, group_id: int, weights: dict[int, int]) -> None:
        group = self.group(group_id)
        self._check_members(weights)
        self._set_weights(group, weights)

    def delete_group(self, group_id: int) -> None:
        group = self.group(group_id)
        if group.uses:
            self._fail(rpc_code.FAILED_PRECONDITION, f"group {group_id} is used by a table entry")
        self._set_weights(group, {})
        del self.groups[group_id]

    def _check_members(self, weights: dict[int, int]) -> None:
        for member_id in weights:
            self.member(member_id)

    def _set_weights(self, group: Group, weights: dict[int, int]) -> None:
        """Handles come and go in PI's order: by member id, and what nobody needs goes last."""
        changed = [self.members[member_id] for member_id in sorted({*group.weights, *weights})]
        for member in changed:
            member.weights.pop(group.id, None)
            if member.id in weights:
                member.weights[group.id] = weights[member.id]
            self._handles.resize(member.handles, max(len(member.handles), member.copies))
        group.weights = dict(sorted(weights.items()))
        self._order(group)
        for member in changed:
            self._handles.resize(member.handles, member.copies)

    def _order(self, group: Group) -> None:
        """A group's members stand in the order of their handles (BMv2, RandAccessUIntSet)."""
        members = [self.members[member_id] for member_id in group.weights]
        placed = {handle: member.call for member in members for handle in member.handles[: member.weights[group.id]]}
        group.members[:] = [placed[handle] for handle in sorted(placed)]

    def _refuse_with_one_shots(self) -> None:
        if self.one_shots:
            self._fail(
                rpc_code.INVALID_ARGUMENT, "has one-shot action sets, they can't be mixed with members and groups"
            )

    def _fail(self, code: int, message: str) -> NoReturn:
        raise StatusError(code, f"action profile '{self.name}': {message}")


class _Handles:
    """BMv2's HandleMgr: the lowest free handle is given first."""

    def __init__(self) -> None:
        self._released: list[int] = []
        self._next = 0

    def resize(self, handles: list[int], size: int) -> None:
        """Makes `handles` that long, at its end."""
        while len(handles) < size:
            handles.append(heappop(self._released) if self._released else self._next)
            self._next = max(self._next, handles[-1] + 1)
        while len(handles) > size:
            heappush(self._released, handles.pop())

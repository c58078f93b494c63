"""The control plane: what is written is read back, what is wrong is refused with a reason, restarts are survived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from finsy.proto import U128, p4r

from controller.p4runtime import SwitchError
from controller.plan import entries
from controller.topology import Topology
from ptf_tests.control_plane import DELETE, INSERT, MODIFY, ControlPlane, pipeline
from ptf_tests.fabric_test import OwnSwitchTest, SwitchTest, cases, on_bmv2
from tests.dataplane.counters import Count
from tests.dataplane.entries import (
    BLOCK,
    INGRESS_PORT,
    TRIMMABLE,
    basic,
    discard_route,
    group,
    next_hop,
    queue_limits,
    route,
    sid,
    traffic_class,
)
from tests.dataplane.frames import forwarded, frame
from tests.dataplane.processes import TIMEOUT

DST = "fd00::2"
ROUTES = {f"{DST}/128": 1, "::/0": 2}
SENT = frame(200, dst=DST)
SetConfig = p4r.SetForwardingPipelineConfigRequest

Change = Callable[[p4r.TableEntry], Any]
"""Makes an entry wrong."""


def wrong(entry: Any, change: Change) -> p4r.Entity:
    entity = pipeline().encode(entry)
    change(entity.table_entry)
    return entity


def match_value(place: int, value: bytes) -> Change:
    def change(entry: p4r.TableEntry) -> None:
        kind = entry.match[place].WhichOneof("field_match_type")
        getattr(entry.match[place], str(kind)).value = value

    return change


def prefix_len(bits: int) -> Change:
    def change(entry: p4r.TableEntry) -> None:
        entry.match[0].lpm.prefix_len = bits

    return change


def param(place: int, **fields: Any) -> Change:
    def change(entry: p4r.TableEntry) -> None:
        entry.action.action.params[place].MergeFrom(p4r.Action.Param(**fields))

    return change


def action_id(number: int) -> Change:
    def change(entry: p4r.TableEntry) -> None:
        entry.action.action.action_id = number

    return change


def without_params(entry: p4r.TableEntry) -> None:
    del entry.action.action.params[:]


def without_match(entry: p4r.TableEntry) -> None:
    del entry.match[:]


def without_action(entry: p4r.TableEntry) -> None:
    entry.ClearField("action")


def unknown_table(entry: p4r.TableEntry) -> None:
    entry.table_id = 0x02FFFFFF


def with_priority(entry: p4r.TableEntry) -> None:
    entry.priority = 7


def direct_action(entry: p4r.TableEntry) -> None:
    other = pipeline().encode(route("fd00:9::/64", 1)).table_entry
    entry.action.CopyFrom(other.action)


def weight(number: int) -> Change:
    def change(entry: p4r.TableEntry) -> None:
        entry.action.action_profile_action_set.action_profile_actions[0].weight = number

    return change


def default_action(entry: p4r.TableEntry) -> None:
    del entry.match[:]
    entry.is_default_action = True


class Refused(SwitchTest):
    """Refused with its canonical code and a message; the switch holds what it held, and forwards."""

    entity: ClassVar[p4r.Entity]
    codes: ClassVar[tuple[str, ...]]
    update: ClassVar[Any] = INSERT

    def check(self) -> None:
        self.switch.install(*basic(ROUTES))
        before = sorted(map(str, self.switch.control.entries()))
        (error,) = self.switch.control.refused(self.update, self.entity)
        self.assertIn(error.code, self.codes, error.message)
        self.assertEqual(sorted(map(str, self.switch.control.entries())), before)
        self.switch.send(SENT)
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()


NEW_ROUTE, NEW_HOP, NEW_GROUP = route("fd00:9::/64", 1), next_hop(20), group(5, (1,))
NEW_CLASS = traffic_class(33, 0)
INVALID = ("INVALID_ARGUMENT",)

cases(
    globals(),
    Refused,
    {
        f"{rule} is refused": {"entity": entity, "codes": codes, "update": update}
        for rule, update, entity, codes in (
            ("an entry that exists", INSERT, pipeline().encode(next_hop(1)), ("ALREADY_EXISTS",)),
            ("a prefix that exists", INSERT, pipeline().encode(discard_route("::/0")), ("ALREADY_EXISTS",)),
            ("modifying what is not there", MODIFY, pipeline().encode(NEW_ROUTE), ("NOT_FOUND",)),
            ("deleting what is not there", DELETE, pipeline().encode(NEW_ROUTE), ("NOT_FOUND",)),
            ("a table that is not there", INSERT, wrong(NEW_ROUTE, unknown_table), INVALID),
            ("an action that is not there", INSERT, wrong(NEW_ROUTE, action_id(0x01FFFFFF)), INVALID),
            ("another table's action", INSERT,
             wrong(NEW_ROUTE, action_id(pipeline().schema.actions["forward"].id)), INVALID),
            ("an entry without an action", INSERT, wrong(NEW_ROUTE, without_action), INVALID),
            ("an action without its parameters", INSERT, wrong(NEW_HOP, without_params), INVALID),
            ("a parameter that is not there", INSERT, wrong(NEW_ROUTE, param(0, param_id=9)), INVALID),
            ("a parameter that is too wide", INSERT, wrong(NEW_HOP, param(0, value=b"\x02\x00")), INVALID),
            ("a DSCP of 64", INSERT, wrong(NEW_CLASS, match_value(0, b"\x40")), INVALID),
            ("a queue of 8", INSERT, wrong(NEW_CLASS, param(0, value=b"\x08")), INVALID),
            ("an entry without its exact key", INSERT, wrong(NEW_HOP, without_match), INVALID),
            ("a key that is too wide", INSERT, wrong(NEW_HOP, match_value(0, b"\x01\x00\x00")), INVALID),
            ("a prefix with host bits", INSERT, wrong(sid(f"{BLOCK}:9::/48"), prefix_len(40)), INVALID),
            ("a prefix of 129 bits", INSERT, wrong(sid(f"{BLOCK}:9::/48"), prefix_len(129)), INVALID),
            ("a priority where there is none", INSERT, wrong(NEW_ROUTE, with_priority), INVALID),
            ("a plain action in a group's place", INSERT, wrong(NEW_GROUP, direct_action), INVALID),
            ("a member of weight 0", INSERT, wrong(NEW_GROUP, weight(0)), INVALID),
            ("a member of negative weight", INSERT, wrong(NEW_GROUP, weight(-1)), INVALID),
            ("another default action of a constant one", MODIFY, wrong(discard_route("::/0"), default_action),
             ("PERMISSION_DENIED",)),
            ("inserting a default action", INSERT, wrong(discard_route("::/0"), default_action), INVALID),
            ("an update without an entity", INSERT, p4r.Entity(), (*INVALID, "UNKNOWN")),
        )
    },
)  # fmt: skip


class AnEmptyActionSetIsRefused(SwitchTest):
    """A one-shot group without members would have nowhere to send to."""

    def runTest(self) -> None:
        entity = pipeline().encode(group(5, (1,)))
        del entity.table_entry.action.action_profile_action_set.action_profile_actions[:]
        (error,) = self.switch.control.refused(INSERT, entity)
        self.assertIn(error.code, ("INVALID_ARGUMENT", "UNIMPLEMENTED"))


class AFullTableSaysSo(SwitchTest):
    """my_sid has room for 1,024 (p4src/my_sid.p4); the rest of the request is carried out."""

    def runTest(self) -> None:
        size = pipeline().schema.tables["my_sid"].size
        self.switch.install(*(sid(f"{BLOCK}:{number:x}::/48") for number in range(1, size + 1)))
        entity = pipeline().encode(sid(f"{BLOCK}:{size + 1:x}::/48"))
        (error,) = self.switch.control.refused(INSERT, entity)
        self.assertEqual(error.code, "UNKNOWN" if on_bmv2() else "RESOURCE_EXHAUSTED", error.message)
        self.assertEqual(len(self.switch.control.entries()), size)


class AWrongUpdateDoesNotHoldUpTheOthers(SwitchTest):
    """CONTINUE_ON_ERROR: the good ones of a request are in force, and each wrong one has its own error."""

    def runTest(self) -> None:
        self.switch.install(*basic({}))
        good = [route(f"{DST}/128", 1), route("fd00:9::/64", 2)]
        errors = self.switch.control.refused(
            INSERT,
            pipeline().encode(good[0]),
            pipeline().encode(next_hop(1)),
            wrong(NEW_HOP, without_match),
            pipeline().encode(good[1]),
        )
        self.assertEqual([error.code for error in errors], ["OK", "ALREADY_EXISTS", "INVALID_ARGUMENT", "OK"])
        self.assertTrue(all(error.message for error in errors if error.code != "OK"), errors)
        self.switch.send(SENT)
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()
        self.assertEqual(self.switch.control.write(DELETE, good), [])


class ARequestForAnotherDeviceIsRefused(SwitchTest):
    def runTest(self) -> None:
        (error,) = self.switch.control.refused(INSERT, pipeline().encode(next_hop(1)), device_id=77)
        self.assertEqual(error.code, "PERMISSION_DENIED" if on_bmv2() else "NOT_FOUND")


class AWrongElectionIdIsRefused(SwitchTest):
    def runTest(self) -> None:
        entity = pipeline().encode(next_hop(1))
        for number in (0, self.switch.control.election_id - 1, self.switch.control.election_id + 1):
            (error,) = self.switch.control.refused(INSERT, entity, election_id=U128.encode(number))
            self.assertEqual(error.code, "PERMISSION_DENIED", error.message)


class EntriesAreReadBackAsTheyWereWritten(SwitchTest):
    """Everything that the controller plans for a T0 of the demo: each table, groups with weights, all kinds of keys."""

    def runTest(self) -> None:
        topo = Topology.preset("demo")
        planned = list(entries(topo, topo.switch("p0t0-0")))
        self.assertEqual(len({entry.table for entry in planned}), 11)
        self.switch.install(*planned)
        self.assertEqual(sorted(map(str, self.switch.control.entries())), sorted(map(str, planned)))


class WeightsAreReadBack(SwitchTest):
    def runTest(self) -> None:
        written = group(7, (1, 2, 3), (3, 1, 2))
        self.switch.install(*basic({}), written)
        (found,) = (entry for entry in self.switch.control.entries() if entry.table == "ecmp_group")
        self.assertEqual(sorted(found.members), sorted(written.members))


class OneEntryCanBeRead(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        entity = pipeline().encode(route(f"{DST}/128", 1))
        selector = p4r.Entity()
        selector.CopyFrom(entity)
        selector.table_entry.ClearField("action")
        (found,) = self.switch.control.read(selector)
        self.assertEqual(found.table_entry.action, entity.table_entry.action)


class AnEntryThatIsModifiedActsAtOnce(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        for port in (3, 4, 5, 1):
            self.switch.modify(route(f"{DST}/128", port))
            self.switch.send(SENT)
            self.switch.expect(port, forwarded(SENT, port))
        self.switch.done()


# ---- Pipelines


def set_pipeline(control: ControlPlane, action: Any) -> None:
    request = SetConfig(
        device_id=control.device_id,
        election_id=U128.encode(control.election_id),
        action=action,
        config=pipeline().config,
    )
    control.stub.SetForwardingPipelineConfig(request, timeout=TIMEOUT)


class APipelineThatIsPushedAgainWipesAllState(OwnSwitchTest):
    """VERIFY_AND_COMMIT: entries and counters are gone."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        self.switch.send(SENT)
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()
        set_pipeline(self.switch.control, SetConfig.VERIFY_AND_COMMIT)
        self.assertEqual(self.switch.control.entries(), [])
        self.assertEqual(self.switch.control.counter("port_rx", range(9)), {})
        self.switch.commit()
        self.switch.install(*basic(ROUTES))
        self.switch.send(SENT)
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()


class APipelineThatIsOnlyVerifiedChangesNothing(SwitchTest):
    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        set_pipeline(self.switch.control, SetConfig.VERIFY)
        self.switch.send(SENT)
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()


class TheCookieNamesThePipeline(SwitchTest):
    def runTest(self) -> None:
        self.assertEqual(self.switch.control.cookie(), pipeline().cookie)


# ---- Restarts and controllers


class WithoutAPipelineNothingCanBeWrittenOrRead(OwnSwitchTest):
    def runTest(self) -> None:
        bare = self.start()
        self.assertIsNone(bare.control.cookie())
        (error,) = bare.control.refused(INSERT, pipeline().encode(next_hop(1)))
        self.assertEqual(error.code, "FAILED_PRECONDITION", error.message)
        with self.assertRaises(SwitchError):
            bare.control.entries()


class ARestartedSwitchForgetsAllAndIsProgrammedAgain(OwnSwitchTest):
    """After a power cut: no pipeline, no entry; the same push brings it back."""

    def runTest(self) -> None:
        for _ in range(2):
            self.switch.install(*basic(ROUTES), queue_limits(1, 48, 60))
            self.switch.send(SENT)
            self.switch.expect(1, forwarded(SENT, 1))
            self.switch.done()
            self.switch.restart()
            self.assertIsNone(self.switch.control.cookie())
            self.switch.commit()
            self.assertEqual(self.switch.control.entries(), [])
            self.assertEqual(self.switch.control.counter("port_rx", [INGRESS_PORT]), {})


class ASwitchForwardsWhileItsControllerIsAway(OwnSwitchTest):
    """The controller comes back with a higher election id, finds what it wrote, and goes on."""

    def runTest(self) -> None:
        self.switch.install(*basic(ROUTES))
        before = sorted(map(str, self.switch.control.entries()))
        for number in (2, 3):
            self.switch.reconnect(election_id=number)
            self.assertEqual(sorted(map(str, self.switch.control.entries())), before)
            self.switch.send(SENT)
            self.switch.expect(1, forwarded(SENT, 1))
            self.switch.done()
        self.switch.modify(route(f"{DST}/128", 3))
        self.switch.send(SENT)
        self.switch.expect(3, forwarded(SENT, 3))
        self.switch.done()
        count = self.switch.control.direct_counter(route(f"{DST}/128", 3))
        self.assertGreaterEqual(count, Count(1, len(SENT)))


class TheHighestElectionIdIsPrimary(OwnSwitchTest):
    """The loser is told who won, and may not write."""

    def runTest(self) -> None:
        with self.assertRaises(SwitchError) as lost:
            ControlPlane(self.switch.where, 0)
        self.assertIn("not primary", str(lost.exception))
        winner = ControlPlane(self.switch.where, 5)
        self.addCleanup(winner.close)
        entity = pipeline().encode(traffic_class(TRIMMABLE, 0))
        (error,) = self.switch.control.refused(INSERT, entity)
        self.assertEqual(error.code, "PERMISSION_DENIED", error.message)
        self.assertEqual(winner.refused(INSERT, entity), [])
        with self.assertRaises(SwitchError) as lost:
            ControlPlane(self.switch.where, 4)
        self.assertIn("5", str(lost.exception))

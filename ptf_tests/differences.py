"""Where the targets differ (docs/targets.md): each test says what either does."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import grpc
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format

from controller.p4runtime import SwitchError
from controller.plan import Entry
from ptf_tests.control_plane import INSERT, MODIFY, pipeline
from ptf_tests.fabric_test import OwnSwitch, OwnSwitchTest, on_bmv2
from tests.dataplane.entries import DATA, basic, group, group_route, next_hop, queue_limits
from tests.dataplane.frames import forwarded, frame
from tests.dataplane.processes import TIMEOUT

DST = "fd00::2"
ROW, GROUP, SEED = "fd00:9::/64", 1, 7
SENT = frame(200, dst=DST)
FLOWS = [frame(200 + n, dst=f"fd00:9::{n:x}") for n in range(1, 33)]
PROGRAMS = Path(__file__).parent / "programs"
SetConfig = p4r.SetForwardingPipelineConfigRequest


def set_config(switch: OwnSwitch, config: p4r.ForwardingPipelineConfig, action: Any) -> None:
    control = switch.control
    request = SetConfig(
        device_id=control.device_id, election_id=U128.encode(control.election_id), action=action, config=config
    )
    control.stub.SetForwardingPipelineConfig(request, timeout=TIMEOUT)


class Bmv2LosesSilentlyWhatItsQueueOf64DoesNotHold(OwnSwitchTest):
    """With a limit above 64 the program never learns of a full queue: nothing trimmed, nothing counted. The embedded
    target's queue has no end of its own; there only the program drops."""

    rates: ClassVar[Mapping[int, int]] = {DATA: 40}
    BURST = 100

    def runTest(self) -> None:
        self.switch.install(*basic({f"{DST}/128": 3}), queue_limits(3, 1000, 60))
        frames = [frame(300 + n, dst=DST) for n in range(self.BURST)]
        for sent in frames:
            self.switch.send(sent)
        self.switch.decide()
        self.assertEqual(self.switch.drops(), {})
        if not on_bmv2():
            self.switch.expect(3, *(forwarded(sent, 3) for sent in frames))
            self.switch.done()
            return
        # The queue takes the first 64, and one for each that it sends while the burst lasts.
        self.switch.expect(3, *(forwarded(sent, 3) for sent in frames[:64]))
        last = frame(1000, dst=DST)
        self.switch.send(last)  # there is room again
        late = [found for _, found in self.switch.receive_until(forwarded(last, 3))]
        self.assertLess(len(late), self.BURST - 64 - 10)
        self.assertEqual(self.switch.drops(), {})


class Bmv2DoesNotTruncateClones(OwnSwitchTest):
    """`truncate` marks the packet, not its clone (so nothing here may rely on cut copies). The embedded target refuses
    a program that clones when it is pushed, and names it."""

    def runTest(self) -> None:
        p4info = text_format.Parse((PROGRAMS / "clone_truncate.p4info.txtpb").read_text(), p4i.P4Info())
        program = (PROGRAMS / "clone_truncate.json").read_bytes()
        config = p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=program)
        if not on_bmv2():
            with self.assertRaises(grpc.RpcError) as refused:
                set_config(self.switch, config, SetConfig.VERIFY_AND_COMMIT)
            self.assertIn("clone", refused.exception.details())
            return
        set_config(self.switch, config, SetConfig.VERIFY_AND_COMMIT)
        session = p4r.CloneSessionEntry(session_id=5, replicas=[p4r.Replica(egress_port=2, instance=1)])
        entity = p4r.Entity(
            packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(clone_session_entry=session)
        )
        self.assertEqual(self.switch.control.refused(INSERT, entity), [])
        self.switch.send(SENT)
        self.switch.expect(1, SENT[:64])
        self.switch.expect(2, SENT)


class Bmv2AcceptsAnEmptyKeyAsZero(OwnSwitchTest):
    """P4Runtime 1.4, "Bytestrings": an empty string is no value. BMv2 takes it for 0, the embedded target
    refuses it."""

    def runTest(self) -> None:
        entity = pipeline().encode(next_hop(20))
        entity.table_entry.match[0].exact.value = b""
        errors = self.switch.control.refused(INSERT, entity)
        if on_bmv2():
            self.assertEqual(errors, [])
            self.assertEqual([entry.match for entry in self.switch.control.entries()], [(("next_hop_id", 0),)])
        else:
            self.assertEqual([error.code for error in errors], ["INVALID_ARGUMENT"])


class PushTest(OwnSwitchTest):
    """A push that BMv2 does not recover from."""

    def program(self) -> None:
        self.switch.install(*basic({f"{DST}/128": 1}))

    def it_forwards(self) -> None:
        self.switch.send(SENT)
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()

    def only_a_restart_helps(self) -> None:
        with self.assertRaises(SwitchError) as refused:
            self.switch.commit()
        self.assertIn("Error in first phase of device update", str(refused.exception))
        self.switch.restart()
        self.switch.commit()
        self.program()
        self.it_forwards()


class Bmv2DoesNotReconcileThisProgram(PushTest):
    """RECONCILE_AND_COMMIT on BMv2: refused; it forwards on, and takes no push until it is started again. The embedded
    target keeps all entries, groups too. The controller never reconciles: it pushes anew and writes what is missing."""

    def runTest(self) -> None:
        self.program()
        if on_bmv2():
            with self.assertRaises(grpc.RpcError) as refused:
                set_config(self.switch, pipeline().config, SetConfig.RECONCILE_AND_COMMIT)
            self.assertEqual(refused.exception.details(), "Error when reconciling config")
            self.switch.send(SENT)  # its counters can't be read any more, so no done()
            self.switch.expect(1, forwarded(SENT, 1))
            self.only_a_restart_helps()
            return
        self.switch.install(group(GROUP, (3,)), group_route(ROW, GROUP, SEED))
        before = sorted(map(str, self.switch.control.entries()))
        set_config(self.switch, pipeline().config, SetConfig.RECONCILE_AND_COMMIT)
        self.assertEqual(sorted(map(str, self.switch.control.entries())), before)
        self.switch.begin()
        self.it_forwards()
        self.switch.send(FLOWS[0])
        self.switch.expect(3, forwarded(FLOWS[0], 3))
        self.switch.done()


class ABrokenProgramIsRefusedAndBmv2MustBeRestarted(PushTest):
    """The embedded target goes on with what it has. BMv2 takes the P4Info before it looks at the program, and has
    neither then."""

    def runTest(self) -> None:
        self.program()
        broken = p4r.ForwardingPipelineConfig(p4info=pipeline().config.p4info, p4_device_config=b"{not JSON")
        with self.assertRaises(grpc.RpcError):
            set_config(self.switch, broken, SetConfig.VERIFY_AND_COMMIT)
        if on_bmv2():
            with self.assertRaises(SwitchError):
                self.switch.control.entries()
            self.only_a_restart_helps()
        else:
            self.it_forwards()


# ---- Groups


def watched(entry: Entry) -> p4r.Entity:
    """A one-shot group whose members watch their ports."""
    entity = pipeline().encode(entry)
    for member, one in zip(
        entity.table_entry.action.action_profile_action_set.action_profile_actions, entry.members, strict=True
    ):
        member.watch_port = bytes([dict(one.params)["next_hop_id"] - 1])  # type: ignore[operator]
    return entity


class AllWatchPortsDownKillBmv2(OwnSwitchTest):
    """A watched member whose port goes down gets nothing until the port is up again. With all of them down BMv2 divides
    by zero at the next packet. The embedded target refuses watch ports; the controller writes none."""

    def runTest(self) -> None:
        self.switch.install(*basic({}), group_route(ROW, GROUP, SEED))
        errors = self.switch.control.refused(INSERT, watched(group(GROUP, (3, 4))))
        if not on_bmv2():
            self.assertEqual([error.code for error in errors], ["UNIMPLEMENTED"])
            return
        self.assertEqual(errors, [])
        self.assertEqual(self.ports_used(), {3, 4})
        self.switch.set_port_up(3, False)
        self.assertEqual(self.ports_used(), {4})
        self.switch.set_port_up(3, True)
        self.assertEqual(self.ports_used(), {3, 4})
        self.switch.set_port_up(3, False)
        self.switch.set_port_up(4, False)
        self.switch.send(FLOWS[0])
        self.assertEqual(self.switch.process.process.wait(TIMEOUT), -signal.SIGFPE)

    def ports_used(self) -> set[int]:
        for sent in FLOWS:
            self.switch.send(sent)
        used = {port for port, _ in self.switch.receive(len(FLOWS))}
        self.switch.done()
        return used


def member(number: int, port: int) -> p4r.Entity:
    one_shot = pipeline().encode(group(GROUP, (port,))).table_entry.action.action_profile_action_set
    profile = pipeline().schema.action_profiles["ecmp_members"].id
    return p4r.Entity(
        action_profile_member=p4r.ActionProfileMember(
            action_profile_id=profile, member_id=number, action=one_shot.action_profile_actions[0].action
        )
    )


def members_group(members: Sequence[int]) -> p4r.Entity:
    profile = pipeline().schema.action_profiles["ecmp_members"].id
    entry = p4r.ActionProfileGroup(action_profile_id=profile, group_id=1, max_size=4)
    for number in members:
        entry.members.add(member_id=number, weight=1)
    return p4r.Entity(action_profile_group=entry)


def group_entry() -> p4r.Entity:
    entity = pipeline().encode(group(GROUP, (3,)))
    entity.table_entry.action.action_profile_group_id = 1
    return entity


class AGroupThatIsEmptiedHangsBmv2UntilAMemberReturns(OwnSwitchTest):
    """The embedded target drops, and counts no_next_hop. BMv2's ingress spins on the packet and takes no other, of any
    port. So the controller deletes an entry rather than leave it an empty group."""

    HANGS = 1.0
    """Seconds without an answer that are taken for a hang: there is no event for what does not happen."""

    def runTest(self) -> None:
        self.switch.install(*basic({f"{DST}/128": 1}), group_route(ROW, GROUP, SEED))
        for entity in (member(1, 3), members_group([1]), group_entry()):
            self.assertEqual(self.switch.control.refused(INSERT, entity), [])
        self.switch.send(FLOWS[0])
        self.switch.expect(3, forwarded(FLOWS[0], 3))
        self.assertEqual(self.switch.control.refused(MODIFY, members_group([])), [])
        self.switch.send(FLOWS[0])
        if not on_bmv2():
            self.switch.done(no_next_hop=[FLOWS[0]])
            return
        self.switch.send(SENT)
        found = self.switch.dataplane.poll(self.switch.device, 1, self.HANGS)
        self.assertIsNone(found.packet, "BMv2 goes on: then docs/targets.md is out of date")
        self.assertEqual(self.switch.control.refused(MODIFY, members_group([1])), [])
        self.switch.expect(3, forwarded(FLOWS[0], 3))
        self.switch.expect(1, forwarded(SENT, 1))
        self.switch.done()

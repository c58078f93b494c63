"""The P4Runtime service over gRPC: raw stubs, two clients, finsy."""

from collections.abc import AsyncIterator
from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status

from switch_model.device import Device
from switch_model.server import P4RuntimeServer
from switch_model.traffic import DROPPED
from tests.switch_model.support import FABRIC, PROGRAMS, Ids, call, exact, insert, pipeline_config, read_entries

_SetConfig = p4r.SetForwardingPipelineConfigRequest
_GetConfig = p4r.GetForwardingPipelineConfigRequest


class _Fabric:
    """Two devices behind one server, and a client's stub."""

    def __init__(self, devices: list[Device], address: str, channel: grpc.aio.Channel) -> None:
        self.devices = devices
        self.address = address
        self.channel = channel
        self.stub: Any = p4r_grpc.P4RuntimeStub(channel)

    async def push(self, program: str = "stateful", device_id: int = 1, **more: Any) -> None:
        await self.stub.SetForwardingPipelineConfig(_push(program, device_id, **more))


def _push(program: str, device_id: int = 1, action: Any = _SetConfig.VERIFY_AND_COMMIT, **more: Any) -> Any:
    return _SetConfig(device_id=device_id, action=action, config=pipeline_config(PROGRAMS / program), **more)


@pytest.fixture
async def fabric() -> AsyncIterator[_Fabric]:
    devices = [Device(1), Device(2, name="second")]
    server = P4RuntimeServer(devices)
    address = await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(address) as channel:
        yield _Fabric(devices, address, channel)
    await server.stop()


async def _status(call_: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call_
    return error.value.code(), error.value.details() or ""


def _arbitration(election_id: int, device_id: int = 1) -> p4r.StreamMessageRequest:
    update = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=U128.encode(election_id))
    return p4r.StreamMessageRequest(arbitration=update)


class _Client:
    """A StreamChannel."""

    def __init__(self, fabric: _Fabric) -> None:
        self._stream = fabric.stub.StreamChannel()

    async def ask(self, election_id: int, device_id: int = 1) -> tuple[int, int]:
        await self._stream.write(_arbitration(election_id, device_id))
        return await self.told()

    async def told(self) -> tuple[int, int]:
        """(status code, election id) of the next arbitration update."""
        response = await self._stream.read()
        assert response is not grpc.aio.EOF, await self._stream.code()
        return response.arbitration.status.code, U128.decode(response.arbitration.election_id)

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the server ended the stream."""
        with pytest.raises(grpc.aio.AioRpcError):
            while await self._stream.read() is not grpc.aio.EOF:
                pass
        return await self._stream.code(), await self._stream.details()

    async def send(self, request: p4r.StreamMessageRequest) -> p4r.StreamMessageResponse:
        await self._stream.write(request)
        response = await self._stream.read()
        assert isinstance(response, p4r.StreamMessageResponse)
        return response

    def close(self) -> None:
        self._stream.cancel()


def test_two_devices_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="device id 1 of b is taken by a"):
        P4RuntimeServer([Device(1, name="a"), Device(1, name="b")])


async def test_capabilities(fabric: _Fabric) -> None:
    response = await fabric.stub.Capabilities(p4r.CapabilitiesRequest())
    assert response.p4runtime_api_version == "1.4.0"


async def test_an_unknown_device_is_named(fabric: _Fabric) -> None:
    expected = (grpc.StatusCode.NOT_FOUND, "no device with id 9")
    assert await _status(fabric.stub.Write(p4r.WriteRequest(device_id=9))) == expected
    assert await _status(fabric.stub.GetForwardingPipelineConfig(_GetConfig(device_id=9))) == expected
    assert await _status(fabric.stub.Read(p4r.ReadRequest(device_id=9)).read()) == expected
    client = _Client(fabric)
    await client._stream.write(_arbitration(1, device_id=9))
    assert await client.end() == expected


async def test_without_a_pipeline_nothing_can_be_written_or_read(fabric: _Fabric) -> None:
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
    assert await _status(fabric.stub.Write(p4r.WriteRequest(device_id=1))) == expected
    assert await _status(fabric.stub.Read(p4r.ReadRequest(device_id=1)).read()) == expected
    assert await _status(fabric.stub.GetForwardingPipelineConfig(_GetConfig(device_id=1))) == expected


async def test_other_roles_are_refused(fabric: _Fabric) -> None:
    request = p4r.WriteRequest(device_id=1, role="mirror")
    expected = (grpc.StatusCode.NOT_FOUND, "no role 'mirror': only the default role is supported")
    assert await _status(fabric.stub.Write(request)) == expected


class TestPipelineConfig:
    async def test_the_config_is_kept_as_it_was_given(self, fabric: _Fabric) -> None:
        request = _push("stateful")
        request.config.cookie.cookie = 77
        await fabric.stub.SetForwardingPipelineConfig(request)
        for response_type, has_p4info, has_program in (
            (_GetConfig.ALL, True, True),
            (_GetConfig.COOKIE_ONLY, False, False),
            (_GetConfig.P4INFO_AND_COOKIE, True, False),
            (_GetConfig.DEVICE_CONFIG_AND_COOKIE, False, True),
        ):
            response = await fabric.stub.GetForwardingPipelineConfig(
                _GetConfig(device_id=1, response_type=response_type)
            )
            assert response.config.cookie.cookie == 77
            assert (response.config.p4info == request.config.p4info) is has_p4info
            assert bool(response.config.p4_device_config) is has_program

    async def test_verify_changes_nothing(self, fabric: _Fabric) -> None:
        await fabric.push(action=_SetConfig.VERIFY)
        assert fabric.devices[0].pipeline is None
        code, _ = await _status(fabric.stub.Write(p4r.WriteRequest(device_id=1)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION

    async def test_a_saved_config_takes_writes_and_forwards_once_it_is_committed(self, fabric: _Fabric) -> None:
        await fabric.push("operators")
        running = fabric.devices[0].pipeline
        await fabric.push("stateful", action=_SetConfig.VERIFY_AND_SAVE)
        assert fabric.devices[0].pipeline is running
        await fabric.stub.Write(p4r.WriteRequest(device_id=1, updates=[_known(5)]))
        await fabric.stub.SetForwardingPipelineConfig(_SetConfig(device_id=1, action=_SetConfig.COMMIT))
        assert fabric.devices[0].pipeline is not running
        assert await _count(fabric) == 1
        again = _SetConfig(device_id=1, action=_SetConfig.COMMIT)
        assert await _status(fabric.stub.SetForwardingPipelineConfig(again)) == (
            grpc.StatusCode.NOT_FOUND,
            "no saved config to commit",
        )

    async def test_commit_wipes_and_reconcile_keeps_the_entries(self, fabric: _Fabric) -> None:
        await fabric.push()
        await fabric.stub.Write(p4r.WriteRequest(device_id=1, updates=[_known(5), _known(6)]))
        fabric.devices[0].ingress(1, (bytes(5), b""), 0)
        await fabric.push(action=_SetConfig.RECONCILE_AND_COMMIT)
        assert await _count(fabric) == 2
        assert fabric.devices[0].occupancy() == 0
        await fabric.push()
        assert await _count(fabric) == 0

    async def test_reconcile_keeps_members_and_groups(self, fabric: _Fabric) -> None:
        await fabric.push("profiles")
        ids = Ids(pipeline_config(PROGRAMS / "profiles").p4info)
        profile_id, action = ids.profile("crc16_members"), call(ids.action("set_result"), b"\x05").action
        member = p4r.ActionProfileMember(action_profile_id=profile_id, member_id=1, action=action)
        group = p4r.ActionProfileGroup(
            action_profile_id=profile_id, group_id=2, members=[p4r.ActionProfileGroup.Member(member_id=1, weight=3)]
        )
        entry = p4r.TableEntry(
            table_id=ids.table("by_crc16"),
            match=[exact(1, b"\x07")],
            action=p4r.TableAction(action_profile_group_id=2),
        )
        entities = [
            p4r.Entity(action_profile_member=member),
            p4r.Entity(action_profile_group=group),
            p4r.Entity(table_entry=entry),
        ]
        updates = [p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in entities]
        await fabric.stub.Write(p4r.WriteRequest(device_id=1, updates=updates))
        await fabric.push("profiles", action=_SetConfig.RECONCILE_AND_COMMIT)
        selectors = [
            p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
            p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
            p4r.Entity(table_entry=p4r.TableEntry()),
        ]
        response = await fabric.stub.Read(p4r.ReadRequest(device_id=1, entities=selectors)).read()
        assert list(response.entities) == entities

    async def test_reconcile_with_another_program_keeps_the_old_one(self, fabric: _Fabric) -> None:
        await fabric.push()
        await fabric.stub.Write(p4r.WriteRequest(device_id=1, updates=[_known(5)]))
        running = fabric.devices[0].pipeline
        request = _push("operators", action=_SetConfig.RECONCILE_AND_COMMIT)
        code, details = await _status(fabric.stub.SetForwardingPipelineConfig(request))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith("the entries can't be kept: no table with id ")
        assert fabric.devices[0].pipeline is running

    @pytest.mark.parametrize(
        ("request_", "message"),
        [
            (_push("refused/clone"), "not supported: primitive 'clone_ingress_pkt_to_egress' in action"),
            (_SetConfig(device_id=1, action=_SetConfig.VERIFY), "no config is given"),
            (_push("stateful", action=_SetConfig.UNSPECIFIED), "action 0 of SetForwardingPipelineConfig"),
            (_push("stateful", action=_SetConfig.COMMIT), "COMMIT takes no config"),
        ],
    )
    async def test_refused_configs(self, fabric: _Fabric, request_: Any, message: str) -> None:
        code, details = await _status(fabric.stub.SetForwardingPipelineConfig(request_))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith(message)


def _known(argument: int) -> p4r.Update:
    """An entry for the table known_arguments of stateful.p4."""
    ids = Ids(pipeline_config(PROGRAMS / "stateful").p4info)
    return insert(
        p4r.TableEntry(
            table_id=ids.table("known_arguments"),
            match=[exact(1, bytes([argument]))],
            action=call(ids.action("known"), b"\x01"),
        )
    )


async def _count(fabric: _Fabric, device_id: int = 1) -> int:
    """Table entries that are not constant."""
    request = p4r.ReadRequest(device_id=device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
    return sum(
        not entity.table_entry.is_const
        for response in [response async for response in fabric.stub.Read(request)]
        for entity in response.entities
    )


class TestWrite:
    async def test_devices_are_told_apart(self, fabric: _Fabric) -> None:
        for device_id in (1, 2):
            await fabric.push(device_id=device_id)
        await fabric.stub.Write(p4r.WriteRequest(device_id=2, updates=[_known(5)]))
        assert [await _count(fabric, device_id) for device_id in (1, 2)] == [0, 1]

    async def test_every_update_is_tried_and_gets_an_error_of_its_own(self, fabric: _Fabric) -> None:
        await fabric.push()
        unset = p4r.Update(type=p4r.Update.INSERT)
        request = p4r.WriteRequest(device_id=1, updates=[_known(5), _known(5), unset, _known(6)])
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await fabric.stub.Write(request)
        assert error.value.code() is grpc.StatusCode.UNKNOWN
        assert error.value.details() == (
            "2 of 4 updates failed, first update 1: table 'known_arguments': entry exists, use MODIFY to change it"
        )
        trailers = dict(error.value.trailing_metadata() or ())
        status = rpc_status.Status.FromString(trailers["grpc-status-details-bin"])
        assert (status.code, status.message) == (rpc_code.UNKNOWN, error.value.details())
        errors = []
        for detail in status.details:
            item = p4r.Error()
            assert detail.Unpack(item)
            errors.append((item.canonical_code, item.space))
        assert errors == [
            (rpc_code.OK, ""),
            (rpc_code.ALREADY_EXISTS, "switch_model"),
            (rpc_code.INVALID_ARGUMENT, "switch_model"),
            (rpc_code.OK, ""),
        ]
        assert await _count(fabric) == 2

    async def test_a_full_table(self, fabric: _Fabric) -> None:
        await fabric.push()
        updates = [_known(argument) for argument in range(1, 6)]
        code, details = await _status(fabric.stub.Write(p4r.WriteRequest(device_id=1, updates=updates)))
        assert code is grpc.StatusCode.UNKNOWN
        assert details.endswith("first update 4: table 'TestIngress.known_arguments' is full: 4 entries")

    async def test_atomic_batches_are_unimplemented(self, fabric: _Fabric) -> None:
        await fabric.push()
        request = p4r.WriteRequest(device_id=1, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
        code, details = await _status(fabric.stub.Write(request))
        assert (code, details) == (grpc.StatusCode.UNIMPLEMENTED, "only CONTINUE_ON_ERROR is supported")


async def test_a_bad_read_names_its_cause(fabric: _Fabric) -> None:
    await fabric.push()
    request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry(table_id=3))])
    expected = (grpc.StatusCode.INVALID_ARGUMENT, "no table with id 3")
    assert await _status(fabric.stub.Read(request).read()) == expected


async def test_a_long_read_comes_in_several_messages(fabric: _Fabric) -> None:
    await fabric.stub.SetForwardingPipelineConfig(
        _SetConfig(device_id=1, action=_SetConfig.VERIFY_AND_COMMIT, config=pipeline_config(FABRIC))
    )
    request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(counter_entry=p4r.CounterEntry())])
    sizes = [len(response.entities) async for response in fabric.stub.Read(request)]
    assert sizes == [1000, 1000, 64]  # 4 counters of ports, 16 drop reasons


class TestArbitration:
    async def test_two_clients(self, fabric: _Fabric) -> None:
        await fabric.push()
        first, second = _Client(fabric), _Client(fabric)
        assert await first.ask(10) == (rpc_code.OK, 10)
        assert await second.ask(9) == (rpc_code.ALREADY_EXISTS, 10)
        write = p4r.WriteRequest(device_id=1, election_id=U128.encode(9), updates=[_known(5)])
        denied = (grpc.StatusCode.PERMISSION_DENIED, "not primary of device 1")
        assert await _status(fabric.stub.Write(write)) == denied
        assert await _status(fabric.stub.SetForwardingPipelineConfig(_push("stateful"))) == denied
        assert await second.ask(11) == (rpc_code.OK, 11)
        assert await first.told() == (rpc_code.ALREADY_EXISTS, 11)
        write.election_id.low = 11
        await fabric.stub.Write(write)
        second.close()
        assert await first.told() == (rpc_code.NOT_FOUND, 11)
        assert await _status(fabric.stub.Write(write)) == denied
        assert await first.ask(11) == (rpc_code.OK, 11)

    async def test_a_used_election_id_ends_the_stream(self, fabric: _Fabric) -> None:
        first, second = _Client(fabric), _Client(fabric)
        await first.ask(10)
        await second._stream.write(_arbitration(10))
        assert await second.end() == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "election id 10 is used by another client of device 1",
        )
        assert await first.ask(10) == (rpc_code.OK, 10)

    async def test_a_stream_belongs_to_one_device(self, fabric: _Fabric) -> None:
        client = _Client(fabric)
        await client.ask(10)
        await client._stream.write(_arbitration(10, device_id=2))
        assert await client.end() == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "this stream belongs to device 1",
        )
        assert await _Client(fabric).ask(10, device_id=2) == (rpc_code.OK, 10)

    async def test_other_messages_are_answered_with_an_error(self, fabric: _Fabric) -> None:
        client = _Client(fabric)
        await client.ask(10)
        response = await client.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=1)))
        assert response.error.canonical_code == rpc_code.UNIMPLEMENTED
        assert response.error.message == "the stream takes arbitration and packet-outs only"
        assert response.error.HasField("digest_list_ack")
        assert await client.ask(10) == (rpc_code.OK, 10)


async def test_finsy_pushes_the_pipeline_writes_and_reads(fabric: _Fabric) -> None:
    options = fy.SwitchOptions(
        p4info=FABRIC.with_suffix(".p4info.txtpb"), p4blob=FABRIC.with_suffix(".json"), device_id=2
    )
    entry = fy.P4TableEntry(
        "next_hop",
        match=fy.Match(next_hop_id=7),
        action=fy.Action("forward", port=5, src_mac=0x020000000001, dst_mac=0x020000000002),
    )
    async with fy.Switch("second", fabric.address, options) as switch:
        await switch.insert([entry])
        assert await read_entries(switch, fy.P4TableEntry("next_hop")) == [entry]
        with pytest.raises(fy.P4ClientError) as error:
            await switch.insert([entry])
        assert [item.canonical_code.name for item in error.value.details.values()] == ["ALREADY_EXISTS"]
        await switch.delete_all()
        assert await read_entries(switch, fy.P4TableEntry()) == []
    assert fabric.devices[0].pipeline is None
    assert fabric.devices[1].ingress(1, (bytes(64), b""), 0) == DROPPED


async def test_an_address_that_is_taken_is_refused(fabric: _Fabric) -> None:
    with pytest.raises((OSError, RuntimeError)):
        await P4RuntimeServer([Device(3)]).start(fabric.address)

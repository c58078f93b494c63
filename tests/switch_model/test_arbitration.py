"""Client arbitration, case by case (P4Runtime 1.4, "Rules for Handling MasterArbitrationUpdate")."""

import pytest
from finsy.proto import U128, p4r, rpc_code

from switch_model.arbitration import MAX_CLIENTS, Arbitration
from switch_model.status import StatusError

_DEVICE = 5
_HUGE = (1 << 127) + 3


def _request(election_id: int | None, role: p4r.Role | None = None) -> p4r.MasterArbitrationUpdate:
    number = None if election_id is None else U128.encode(election_id)
    return p4r.MasterArbitrationUpdate(device_id=_DEVICE, election_id=number, role=role)


def _told(updates: dict[str, p4r.MasterArbitrationUpdate]) -> dict[str, tuple[int, int | None]]:
    """(status code, election id) by client."""
    assert all(update.device_id == _DEVICE for update in updates.values())
    return {
        client: (
            update.status.code,
            U128.decode(update.election_id) if update.HasField("election_id") else None,
        )
        for client, update in updates.items()
    }


@pytest.fixture
def arbitration() -> Arbitration[str]:
    return Arbitration(_DEVICE)


def test_the_first_client_becomes_primary(arbitration: Arbitration[str]) -> None:
    assert _told(arbitration.update("a", _request(_HUGE))) == {"a": (rpc_code.OK, _HUGE)}
    assert arbitration.may_write(_HUGE)


def test_a_lower_election_id_is_a_backup_and_learns_of_the_primary(arbitration: Arbitration[str]) -> None:
    arbitration.update("a", _request(10))
    assert _told(arbitration.update("b", _request(9))) == {"b": (rpc_code.ALREADY_EXISTS, 10)}
    assert not arbitration.may_write(9)


def test_a_higher_election_id_takes_over_and_all_are_told(arbitration: Arbitration[str]) -> None:
    arbitration.update("a", _request(10))
    assert _told(arbitration.update("b", _request(11))) == {
        "a": (rpc_code.ALREADY_EXISTS, 11),
        "b": (rpc_code.OK, 11),
    }
    assert not arbitration.may_write(10)
    assert arbitration.may_write(11)


def test_a_used_election_id_is_refused(arbitration: Arbitration[str]) -> None:
    arbitration.update("a", _request(10))
    with pytest.raises(StatusError, match="election id 10 is used by another client of device 5") as error:
        arbitration.update("b", _request(10))
    assert error.value.code == rpc_code.INVALID_ARGUMENT


def test_without_the_primary_nobody_writes_until_somebody_asks(arbitration: Arbitration[str]) -> None:
    arbitration.update("a", _request(10))
    arbitration.update("b", _request(9))
    assert _told(arbitration.disconnect("a")) == {"b": (rpc_code.NOT_FOUND, 10)}
    assert not arbitration.may_write(9)
    assert not arbitration.may_write(10)
    # Below the highest that was ever seen is not enough, equal is.
    assert _told(arbitration.update("b", _request(9))) == {"b": (rpc_code.NOT_FOUND, 10)}
    assert _told(arbitration.update("b", _request(10))) == {"b": (rpc_code.OK, 10)}
    assert arbitration.may_write(10)


def test_a_primary_that_steps_down_leaves_no_primary(arbitration: Arbitration[str]) -> None:
    arbitration.update("a", _request(10))
    arbitration.update("b", _request(9))
    assert _told(arbitration.update("a", _request(8))) == {
        "a": (rpc_code.NOT_FOUND, 10),
        "b": (rpc_code.NOT_FOUND, 10),
    }


def test_a_backup_that_leaves_is_not_missed(arbitration: Arbitration[str]) -> None:
    arbitration.update("a", _request(10))
    arbitration.update("b", _request(9))
    assert arbitration.disconnect("b") == {}


def test_an_unset_election_id_never_becomes_primary(arbitration: Arbitration[str]) -> None:
    assert _told(arbitration.update("a", _request(None))) == {"a": (rpc_code.NOT_FOUND, None)}
    assert _told(arbitration.update("b", _request(0))) == {
        "a": (rpc_code.ALREADY_EXISTS, 0),
        "b": (rpc_code.OK, 0),
    }


def test_requests_without_election_id_are_taken_while_nobody_is_connected(arbitration: Arbitration[str]) -> None:
    assert arbitration.may_write(None)
    assert not arbitration.may_write(1)
    arbitration.update("a", _request(1))
    assert not arbitration.may_write(None)


def test_other_roles_are_refused(arbitration: Arbitration[str]) -> None:
    with pytest.raises(StatusError, match="role 'mirror': only the default role is supported") as error:
        arbitration.update("a", _request(1, p4r.Role(name="mirror")))
    assert error.value.code == rpc_code.UNIMPLEMENTED
    assert not arbitration.clients


def test_clients_are_limited(arbitration: Arbitration[str]) -> None:
    for number in range(MAX_CLIENTS):
        arbitration.update(str(number), _request(number))
    with pytest.raises(StatusError) as error:
        arbitration.update("one more", _request(MAX_CLIENTS))
    assert error.value.code == rpc_code.RESOURCE_EXHAUSTED
    arbitration.update("0", _request(MAX_CLIENTS))  # a live one may still change

"""Headers that are added, removed and copied; packet_length and truncate (BMv2's meaning of both)."""

import pytest

from tests.switch_model.support import forward, load

_PUSH, _POP, _COPY, _SHORTEN, _VANISH = 1, 2, 3, 4, 5


def _report(length: int, tag: bool, copy: bool) -> bytes:
    return length.to_bytes(4) + bytes([2 * tag + copy])


@pytest.mark.parametrize(
    ("command", "frame", "expected"),
    [
        # The tag starts from 0 whatever stood there; packet_length counts it.
        (_PUSH, "0100 55", _report(5, True, False) + bytes.fromhex("0101 0abc 55")),
        # setValid on a valid header changes nothing, the assignment only id.
        (_PUSH, "0101 f123 55", _report(5, True, False) + bytes.fromhex("0101 fabc 55")),
        (_POP, "0201 f123 55", _report(3, False, False) + bytes.fromhex("0200 55")),
        (_POP, "0200 55", _report(3, False, False) + bytes.fromhex("0200 55")),
        # A copied header is valid, but assign_header does not count in packet_length.
        (_COPY, "0301 e123 55", _report(5, True, True) + bytes.fromhex("0301 e123 f123 55")),
        # Copying an invalid header makes the copy invalid.
        (_COPY, "0300 55", _report(3, False, False) + bytes.fromhex("0300 55")),
        # truncate limits the deparsed frame, report included; the smallest of several wins.
        (_SHORTEN, "0400 5566778899", (_report(7, False, False) + bytes.fromhex("0400"))[:6]),
        (0, "0000 55", _report(3, False, False) + bytes.fromhex("0000 55")),
        (0, "00", _report(1, False, False) + bytes.fromhex("00")),
    ],
)
def test_headers(command: int, frame: str, expected: bytes) -> None:
    device, _ = load("headers")
    data = bytes.fromhex(frame)
    assert data[0] == command
    for split in range(len(data) + 1):
        assert forward(device, data, head=split) == expected, f"split at {split}"


def test_truncate_to_nothing_sends_nothing() -> None:
    device, _ = load("headers")
    device.ingress(1, (bytes([_VANISH, 0]), b"payload"), 0)
    device.ingress(1, (bytes([0, 0]), b"next"), 0)
    out = device.dequeue(1, 0)
    assert out is not None
    assert b"".join(out).endswith(b"next")
    assert device.occupancy() == 0


def test_truncate_cuts_the_tail_only_when_the_head_fits() -> None:
    device, _ = load("headers")
    device.ingress(1, (bytes([_SHORTEN, 0]), b"payload"), 0)
    out = device.dequeue(1, 0)
    assert out == ((_report(9, False, False) + bytes([_SHORTEN, 0]))[:6], b"")

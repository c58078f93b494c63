"""The ICRC against scapy, which computes RoCEv2's over IPv6."""

from random import Random

import pytest
from scapy.contrib import roce
from scapy.layers import inet, inet6
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from nic_model.headers import Opcode
from nic_model.icrc import icrc, icrc_after, ip_udp_crc, is_intact

IP_UDP = 48
IP_UDP_BTH = 60
RC_WRITE_ONLY, RC_ACKNOWLEDGE = 0x0A, 0x11

# The bits that a network may change (InfiniBand annex A17), of IPv6 + UDP + BTH: traffic class and flow label,
# hop limit, UDP checksum, BTH byte 4.
VARIANT = [*range(4, 32), *range(56, 64), *range(368, 384), *range(416, 424)]


def scapy_packet(random: Random, opcode: int, payload: ScapyPacket) -> bytes:
    """IPv6 to ICRC, every field of the headers at random."""
    address = ":".join(f"{random.randrange(1, 1 << 16):x}" for _ in range(8))
    return bytes(
        inet6.IPv6(
            tc=random.randrange(1 << 8),
            fl=random.randrange(1 << 20),
            hlim=random.randrange(1 << 8),
            src=address,
            dst="fd00::" + address[:4].strip(":"),
        )
        / inet.UDP(sport=random.randrange(1 << 16), dport=4791, chksum=random.randrange(1 << 16))
        / roce.BTH(
            opcode=opcode,
            padcount=random.randrange(4),
            pkey=random.randrange(1 << 16),
            fecn=random.randrange(2),
            becn=random.randrange(2),
            resv6=random.randrange(1 << 6),
            dqpn=random.randrange(1 << 24),
            ackreq=random.randrange(2),
            resv7=random.randrange(1 << 7),
            psn=random.randrange(1 << 24),
        )
        / payload
    )


def packets() -> list[bytes]:
    random = Random(4791)
    data = [
        scapy_packet(random, opcode, Raw(random.randbytes(random.choice([4, 20, 24, 1024, 4120]))))
        for opcode in [RC_WRITE_ONLY, *Opcode] * 8
    ]
    return data + [scapy_packet(random, RC_ACKNOWLEDGE, roce.AETH(syndrome=0x1F, msn=psn)) for psn in range(16)]


@pytest.mark.parametrize("packet", packets(), ids=range(120))
def test_scapy_computes_the_same(packet: bytes) -> None:
    body, tail = packet[:-4], packet[-4:]
    assert icrc(body) == tail
    # However the bytes are cut into pieces, and whoever took IPv6 and UDP first.
    assert icrc(body[:IP_UDP_BTH], memoryview(body)[IP_UDP_BTH:]) == tail
    assert icrc_after(ip_udp_crc(body[:IP_UDP]), body[IP_UDP:]) == tail
    assert icrc_after(ip_udp_crc(body[:IP_UDP]), body[IP_UDP:IP_UDP_BTH], b"", body[IP_UDP_BTH:]) == tail
    assert is_intact(packet)
    assert is_intact(packet[:IP_UDP_BTH], memoryview(packet)[IP_UDP_BTH:-2], packet[-2:])


def test_every_bit_counts_but_those_that_a_network_may_change() -> None:
    packet = scapy_packet(Random(1), Opcode.WRITE_ONLY, Raw(bytes(range(64))))
    bits = len(packet) * 8
    intact = []
    for bit in range(bits):
        flipped = int.from_bytes(packet, "big") ^ 1 << bits - 1 - bit
        if is_intact(flipped.to_bytes(len(packet), "big")):
            intact.append(bit)
    # The version is taken as 6: whoever parses has checked it.
    assert intact == [0, 1, 2, 3, *VARIANT]

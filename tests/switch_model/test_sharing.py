"""Fields that share bytes, long fields that stay bytes, and p4c's temporaries: what BMv2 makes of the same frames."""

import pytest

from switch_model.device import Device
from tests.switch_model.support import forward, load

# Recorded from simple_switch_grpc 1.15.5.
_FRAMES = [
    ("18b4e652e44da7f2370d9e260e27136550a4a3a65c0c", "1bb2e62efffda7f2370d9e260e27136550a4a3a65c0c"),
    ("132f8b1224083fd22b902f8911e81818f8c99d5d3195", "162d8b6efff83fd22b902f8911e81818f8c99d5d3195"),
    ("1504d90e9459e2e8f54ee781cc75f636d85099090016", "0802d972fff8e2e8f54ee781cc75f636d85099090016"),
    ("3a67036f9b540d6b8f0be21124179c3dd9f73817118d", "3a6602ef9b540d6b8f0be21124179c3dd9000000008d"),
    ("264aad6cb6dd210faf94acd3cf92c190237cb11f8cf2", "264a02ecb6dd210faf94acd3cf92c1902300000000f2"),
    ("3930263938b970a1b5769fa0f1483f95a90d9df2d60f", "273002b938b870a1b5769fa0f1483f95a9000000000f"),
    ("4f04bd93f50ae69514da8c659ce2b10cccdaebf99838", "4f04bd93f50fe69514da8c659ce2b1000c0000000f38"),
    ("50d7ec0b3e97818ecb96c4dbadbe172296d5234a4c6b", "50d7ec0b3e9f818ecb96c4dbadbe1700090000000f6b"),
    ("44e6ed24ec696a8ac0a1271e5866279238aaf84e6d8f", "44e6ed24ec6f6a8ac0a1271e586627000b0000000f8f"),
    ("6fa8edd094ba97ae8b15442ee2db611a91bfe3943a92", "6fa8edd094ba97ae8b15442ee2db61a2c597e2442e92"),
    ("67d58fa3c55018300372555fd235f11829fb388c4cb6", "67d58fa3c55018300372555fd235f100dc18d2555fb6"),
    ("77f01210c3797a90b405420fb169779edfb5b934157f", "69f01210c3787a90b405420fb169772d017ab1420f7f"),
    ("94b12eae62d11e887eb0766d1877f8c6eff26b503177", "94b12eae62d11e887eb0766d1877f8052d0000000077"),
    ("9161e79587a766ec30e4037458a9905cad87bd4c983f", "9161e79587a766ec30e4037458a990077a000000003f"),
    ("87745ccb9a39052e944cf1b220eaa2c7fb1b7d3ef414", "99745ccb9a38052e944cf1b220eaa208a30000000014"),
    ("af6e0d935520dd4c2147738606f2bf7ec70209e0ee57", "af6e0d935520dd4c2147738606f2bf7ec70209e0ee0f00aaff000057"),
    ("a0edbcba3acce672084ab649fcbce49b38bdecfabd12", "a0edbcba3acce672084ab649fcbce49b38bdecfabd0000aaff000012"),
    ("b08f391ebc090e83e8180a6bd4f43a2afffcd3c19057", "b08f391ebc080e83e8180a6bd4f43a2afffcd3c1901000aaff000057"),
    ("d575e826e2cbeaee82af2c7d696cf46b977c090a46f6", "d575e826e2cbeaee82af2c7d696cf46b977c090a46f575e826e2cbf6"),
    ("d03110ab86efde139eeabac37a0dde8ef2d3b19202ca", "d03110ab86efde139eeabac37a0dde8ef2d3b19202f03110ab86efca"),
    ("d7501fe0ca997fd1ccc15150424212578fe0feb1a559", "c9501fe0ca987fd1ccc15150424212578fe0feb1a5f7501fe0ca9959"),
    ("ff9f28fe4b14267f1b037494dd1c01cc6adfc9749a11", "ff9f28fe4b14267f1b037494dd1c010001dfc9749a11"),
    ("fe2008d737e3f517d69ed6f181bd1a4529825e7971b2", "fe2008d737e3f517d69ed6f181bd1a0007825e7971b2"),
    ("fae105aab2d9a3100b08880f0f422dbb36fb94b3424f", "e6e105aab2d8a3100b08880f0f422d0001fb94b3424f"),
    ("18b4e652e44d", "1bb2e62efffd"),
    ("18b4e652e4", "18b4e652e4"),
    ("af6e0d935520dd4c2147738606f2bf7ec70209e0", "af6e0d9355200f00aaff0000dd4c2147738606f2bf7ec70209e0"),
    ("18b4e652e44da7f2370d9e260e27136550a4a3a65c", "1bb2e62efffda7f2370d9e260e27136550a4a3a65c"),
]


@pytest.fixture(scope="module")
def device() -> Device:
    return load("sharing")[0]


@pytest.mark.parametrize(("sent", "expected"), _FRAMES)
def test_as_bmv2(device: Device, sent: str, expected: str) -> None:
    assert forward(device, bytes.fromhex(sent)) == bytes.fromhex(expected)


def test_a_temporary_keeps_its_value_when_an_operand_changes() -> None:
    device, config = load("sharing")
    index = 0x2AB
    frame = bytes([1 << 5]) + (index << 7).to_bytes(3) + bytes(17)
    for count in range(3):
        out = forward(device, frame)
        assert out is not None
        assert out[17:21] == count.to_bytes(4)
        assert int.from_bytes(out[1:4]) >> 7 & 0x3FF == 5
    assert device.read_counter("flows", index) == (3, 3 * len(frame))
    assert config.pipeline.registers["cells"][index + 1] == 3

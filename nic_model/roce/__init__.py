"""The baseline to compare MRC with: RoCEv2, reliable connections, one path per QP, go-back-N, DCQCN.

It has the verbs and the driver's interface of the MRC endpoint (`nic_model.device.Device`):

    nic = RoceNic(path_file, "nic0", rng=rng, settings=RoceSettings.scaled(rate_gbps=400, base_rtt=8_000))

Two baselines: one QP per peer on a single plane of the NIC's total rate, or k QPs over the planes (`StripedQP`).

PFC needs the other end of a port's link: when the switch there has too much of this link's data it calls
`nic.pause(plane, until, now)`, and again with `until = now` as soon as it can take more. `until` may be
`UNTIL_RESUMED`, or the end of the pause time that a PFC frame carries (quanta of 512 bit times). The driver then asks
`ready` and `next_deadline` as always. The endpoint sends no PFC: it takes what comes at line rate.
"""

from nic_model.roce.dcqcn import Dcqcn, DcqcnParameters
from nic_model.roce.nic import UNTIL_RESUMED, RoceNic, RoceSettings
from nic_model.roce.queue_pair import RoceQueuePair
from nic_model.roce.striping import StripedQP, connect_striped

__all__ = [
    "UNTIL_RESUMED",
    "Dcqcn",
    "DcqcnParameters",
    "RoceNic",
    "RoceQueuePair",
    "RoceSettings",
    "StripedQP",
    "connect_striped",
]

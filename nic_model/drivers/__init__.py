"""What runs the sans-IO `Nic` in real time: packet sockets, one per port, and the exchange of QP parameters.

profile    settings for a kind of network, by name
interface  network interfaces as the kernel tells of them
raw        the NIC driven from packet sockets and the real clock
control    out of band: how two NICs tell each other their QPs and memory
transfer   a NIC that others write to, a write to it, a probe of every path
"""

"""What runs the sans-IO `Nic` in real time: packet sockets, one per port, and the exchange of QP parameters.

| module    | what                                                                  |
|-----------|-----------------------------------------------------------------------|
| profile   | settings for a kind of network, by name                               |
| interface | network interfaces, as the kernel tells of them                       |
| raw       | the NIC driven from packet sockets and the real clock                  |
| control   | out of band: how two NICs tell each other their QPs and memory         |
| host      | an application's side of the NIC                                      |
| serve     | a NIC that others write to                                            |
| client    | a write into its memory, a probe of every path to it                   |
| report    | what these gave, as text and as JSON                                  |
"""

"""The control plane: one topology file in, programmed switches and path files for the NICs out.

topology.Topology                the file's fabric: names, addresses, uSIDs, ports, links
tenants.Tenant                   who owns which NICs, and the block that leads to them
plan.entries                     the table entries of a switch
path_files.write_path_files      the NICs' path files
push.push, push.verify           P4Runtime: bring the switches there, check that they are
packet_io.PacketIo               packets between a switch and the controller
cli                              `mrcfab topo`, `mrcfab routes`
"""

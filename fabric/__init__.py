"""Switches, NICs and links joined: virtual-time runs, scenarios, results, containers, and the `mrcfab` command."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
"""Before grpc is imported: its C core would tell stderr of each connection that ends."""

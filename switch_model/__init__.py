"""The embedded P4 target: runs p4c's BMv2 JSON as specialised Python and serves P4Runtime. Knows nothing of MRC.

codegen.compile_program     JSON -> Compiled (its `source` is meant to be read)
device.Device               a switch: frames in, frames out, time given by the caller
server.P4RuntimeServer      many devices at one gRPC address
subset.SUBSET               what of v1model is supported; the rest is refused at load, by name
"""

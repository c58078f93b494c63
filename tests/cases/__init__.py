"""Scripted cases that hold any implementation of an MRC NIC against its specification. README.md says how."""

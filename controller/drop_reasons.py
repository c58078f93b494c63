"""What the indices of the switch program's counter `drop_reasons` mean."""

DROP_REASONS = (
    "none",
    "parser_error",
    "not_my_station",
    "not_ipv6",
    "hop_limit",
    "no_route",
    "last_usid",
    "discard_route",
    "no_next_hop",
    "martian",
    "guard",
    "data_queue_full",
    "trim_queue_full",
)
"""By index, as `enum DropReason` in p4src/headers.p4 has them."""

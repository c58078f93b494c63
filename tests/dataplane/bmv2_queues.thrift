// The part of BMv2's Thrift service that the tests use (behavioral-model, targets/simple_switch/thrift/simple_switch.thrift).
service SimpleSwitch {
  i32 set_egress_priority_queue_rate(1: i32 port_num, 2: i32 priority, 3: i64 rate_pps);
}

#define BODY resubmit_preserving_field_list(1);
#include "base.p4"

#define BODY standard_metadata.mcast_grp = 1;
#include "base.p4"

#define LOCALS meter(8, MeterType.packets) colours;
#define META bit<8> colour;
#define BODY colours.execute_meter(0, meta.colour);
#include "base.p4"

#define BODY clone(CloneType.I2E, 5);
#include "base.p4"

#include "code_loads.h"

#include <string.h>

#include "hami/region.h"

#define ESTIMATED_MOST ((uint64_t)64 << 20)

static struct {
    uint64_t measured; /* what all code took, as last measured */
    uint64_t loads;    /* since then */
    uint64_t each;     /* what one took, as last measured; 0 for unknown */
} code[HAMI_DEVICES_MAX];

void hami_code_loads_add(int device, uint64_t loads)
{
    code[device].loads += loads;
}

bool hami_code_load_cost(int device, uint64_t *bytes)
{
    *bytes = code[device].each;
    return *bytes && code[device].loads * *bytes <= ESTIMATED_MOST;
}

void hami_code_loads_measured(int device, uint64_t code_bytes, bool is_exact)
{
    uint64_t before = code[device].measured, loads = code[device].loads;

    if (loads && is_exact)
        code[device].each = code_bytes > before ? (code_bytes - before + loads - 1) / loads : 1;
    code[device].measured = code_bytes;
    code[device].loads = 0;
}

void hami_code_loads_forget(void)
{
    memset(code, 0, sizeof(code));
}

/*
 * Oversubscription: managed memory instead of device memory.
 *
 * With CUDA_OVERSUBSCRIBE, if the driver is out of memory although the container is within its limit, an allocation becomes managed
 * memory that prefers the device and is mapped there. Its pages move with their use. The program is told that it is device memory.
 * Devices that cannot page managed memory on demand do not get it.
 */
#include <stdatomic.h>
#include <string.h>

#include "account.h"
#include "devices.h"
#include "hooks.h"
#include "log.h"
#include "options.h"
#include "overhead.h"
#include "substitute.h"

enum { CONCURRENT_MANAGED_ACCESS = 89, ATTACH_GLOBAL = 1, SET_PREFERRED_LOCATION = 3, SET_ACCESSED_BY = 5, IS_MANAGED = 8 };

static _Atomic bool is_any;

CUresult hami_memory_substitute(CUresult result, CUdeviceptr *pointer, size_t bytes, bool *is_substitute)
{
    CUdevice ordinal = hami_current_ordinal();
    int can_page = 0;

    *is_substitute = false;
    if (!hami_options()->is_oversubscribed || ordinal < 0 ||
        HAMI_INSIDE(hami_real.cuDeviceGetAttribute(&can_page, CONCURRENT_MANAGED_ACCESS, ordinal)) != CUDA_SUCCESS || !can_page ||
        HAMI_INSIDE(hami_real.cuMemAllocManaged(pointer, bytes, ATTACH_GLOBAL)) != CUDA_SUCCESS)
        return result;
    HAMI_INSIDE(hami_real.cuMemAdvise(*pointer, bytes, SET_PREFERRED_LOCATION, ordinal));
    HAMI_INSIDE(hami_real.cuMemAdvise(*pointer, bytes, SET_ACCESSED_BY, ordinal));
    hami_log(HAMI_LOG_DECISION, "the device is full: %zu bytes become managed memory", bytes);
    atomic_store_explicit(&is_any, true, memory_order_relaxed);
    hami_overhead_note_elsewhere();
    *is_substitute = true;
    return CUDA_SUCCESS;
}

static bool is_substitute(CUdeviceptr pointer)
{
    struct hami_charge known;
    CUdeviceptr base;
    size_t bytes;

    return HAMI_INSIDE(hami_real.cuMemGetAddressRange_v2(&base, &bytes, pointer)) == CUDA_SUCCESS &&
           hami_charges_find(&hami_pointers, base, &known) && known.kind == HAMI_MEMORY_SUBSTITUTE;
}

/* Correct the driver's answer about a pointer, so that managed memory looks like the device memory that was requested. */
static void correct_attribute(int attribute, void *value, CUdeviceptr pointer)
{
    if (attribute == IS_MANAGED && value && is_substitute(pointer))
        memset(value, 0, sizeof(unsigned int));
}

HAMI_EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer)
{
    CUresult result = HAMI_REAL_CUDA(cuPointerGetAttribute)(value, attribute, pointer);

    if (result == CUDA_SUCCESS && atomic_load_explicit(&is_any, memory_order_relaxed) && !hami_inside)
        correct_attribute(attribute, value, pointer);
    return result;
}

HAMI_EXPORT CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **values, CUdeviceptr pointer)
{
    CUresult result = HAMI_REAL_CUDA(cuPointerGetAttributes)(count, attributes, values, pointer);

    if (result == CUDA_SUCCESS && atomic_load_explicit(&is_any, memory_order_relaxed) && !hami_inside)
        for (unsigned int index = 0; index < count; index++)
            correct_attribute(attributes[index], values[index], pointer);
    return result;
}

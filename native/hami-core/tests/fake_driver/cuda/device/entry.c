/*
 * Lookup of the fake driver's functions by name and version, and the answer of those that are not modelled.
 *
 * A function's name is its symbol without `_v<n>` and without `_ptsz` or `_ptds`, which mark the variant for the per-thread default
 * stream. The newest version that is not newer than requested is returned. FAKE_DRIVER_PRIVATE_ENTRIES=1 returns addresses that
 * belong to no exported symbol.
 * Source: CUDA Driver API, "Driver Entry Point Access". Since CUDA 12 a missing symbol gives SUCCESS without an address.
 */
#include <ctype.h>
#include <string.h>

#include "cuda/fake.h"
#include "exports/entry.h"

const bool fake_entry_has_conditions = false;

bool fake_entry_answer(const struct fake_entry *entry, int *result)
{
    (void)entry;
    (void)result;
    return false;
}

int fake_entry_missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Whether a symbol is a version of that name, for the per-thread default stream or not. */
static bool is_of(const char *symbol, const char *name, size_t length, bool is_per_thread)
{
    const char *rest = symbol + length;

    if (strncmp(symbol, name, length) != 0)
        return false;
    if (rest[0] == '_' && rest[1] == 'v' && isdigit((unsigned char)rest[2]))
        rest += 2 + strspn(rest + 2, "0123456789");
    return is_per_thread ? strcmp(rest, "_ptsz") == 0 || strcmp(rest, "_ptds") == 0 : rest[0] == '\0';
}

static const struct fake_entry *newest(const char *name, int version, bool is_per_thread)
{
    const struct fake_entry *best = NULL;
    size_t length = strlen(name);

    for (int index = 0; index < fake_entry_count; index++) {
        const struct fake_entry *entry = &fake_entries[index];

        if ((int)entry->since <= version && fake_exports[index] && (!best || entry->since > best->since) &&
            is_of(entry->symbol, name, length, is_per_thread))
            best = entry;
    }
    return best;
}

static void *address_of(const struct fake_entry *entry)
{
    if (fake_setting("FAKE_DRIVER_PRIVATE_ENTRIES", 0) == 1 && !fake_entry_is_missing(entry))
        return entry->function;
    return fake_exports[entry - fake_entries];
}

/* Returns the address, or NULL with the reason. */
static void *find(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    const struct fake_entry *entry = NULL;
    int driver;

    cuDriverGetVersion(&driver);
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        entry = newest(name, version, true);
    if (!entry)
        entry = newest(name, version, false);
    if (entry)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    else if (newest(name, driver, false))
        *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    else
        *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return entry ? address_of(entry) : NULL;
}

static CUresult check(const char *symbol, void **function, int version, cuuint64_t flags)
{
    int driver;

    cuDriverGetVersion(&driver);
    if (function)
        *function = NULL;
    if (!symbol || !function || version > driver || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status)
{
    CUresult result = check(symbol, function, version, flags);
    CUdriverProcAddressQueryResult ignored;

    if (result == CUDA_SUCCESS)
        *function = find(symbol, version, flags, status ? status : &ignored);
    return result;
}

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    CUresult result = check(symbol, function, version, flags);
    CUdriverProcAddressQueryResult ignored;

    if (result == CUDA_SUCCESS)
        *function = find(symbol, version, flags, &ignored);
    return result == CUDA_SUCCESS && !*function ? CUDA_ERROR_NOT_FOUND : result;
}

/* In these, flags that choose no variant choose the per-thread one. */
static cuuint64_t per_thread(cuuint64_t flags)
{
    return flags ? flags : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

API CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *status)
{
    return cuGetProcAddress_v2(symbol, function, version, per_thread(flags), status);
}

API CUresult cuGetProcAddress_ptsz(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress(symbol, function, version, per_thread(flags));
}

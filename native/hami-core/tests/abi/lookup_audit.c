/*
 * What libcudart looks up in the driver, and what it gets: an auditor of the dynamic linker (rtld-audit(7)). It stands between
 * libcudart and dlsym, and between libcudart and the cuGetProcAddress that it found.
 *
 * Writes a line for each lookup to the file $LOOKUP_LOG: symbol or name, version (0 for dlsym), flags, answer as a hexadecimal
 * number. An auditor has a separate C library, so nothing here is visible to the program.
 */
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hami/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { CUDART = 1 };

static void *(*real_dlsym)(void *, const char *);
static __typeof__(&cuGetProcAddress) real_get_1;
static __typeof__(&cuGetProcAddress_v2) real_get_2;

static void note(const char *name, int version, unsigned long long flags, const void *answer)
{
    const char *path = getenv("LOOKUP_LOG");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;

    if (file < 0)
        return;
    dprintf(file, "%s %d %llu %llx\n", name, version, flags, (unsigned long long)(uintptr_t)answer);
    close(file);
}

static CUresult get_1(const char *name, void **function, int version, cuuint64_t flags);
static CUresult get_2(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status);

/* What libcudart gets: the answer itself, or a function of the auditor if more lookups go through it. */
static void *audited(const char *name, int version, void *answer)
{
    if (!answer || (strcmp(name, "cuGetProcAddress") != 0 && strcmp(name, "cuGetProcAddress_v2") != 0))
        return answer;
    if (version >= 12000 || name[strlen(name) - 1] == '2') {
        real_get_2 = (__typeof__(real_get_2))answer;
        return (void *)get_2;
    }
    real_get_1 = (__typeof__(real_get_1))answer;
    return (void *)get_1;
}

static CUresult get_1(const char *name, void **function, int version, cuuint64_t flags)
{
    CUresult result = real_get_1(name, function, version, flags);

    note(*name ? name : "-", version, flags, result == CUDA_SUCCESS ? *function : NULL);
    if (result == CUDA_SUCCESS)
        *function = audited(name, version, *function);
    return result;
}

static CUresult get_2(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    CUresult result = real_get_2(name, function, version, flags, status);

    note(*name ? name : "-", version, flags, result == CUDA_SUCCESS ? *function : NULL);
    if (result == CUDA_SUCCESS)
        *function = audited(name, version, *function);
    return result;
}

static void *audited_dlsym(void *handle, const char *symbol)
{
    void *answer = real_dlsym(handle, symbol);

    note(symbol, 0, 0, answer);
    return audited(symbol, 0, answer);
}

EXPORT unsigned int la_version(unsigned int version);
EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie);
EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *user, uintptr_t *definer, unsigned int *flags,
                              const char *name);

unsigned int la_version(unsigned int version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned int la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
    (void)namespace;
    *cookie = strstr(map->l_name, "libcudart") ? CUDART : 0;
    return *cookie == CUDART ? LA_FLG_BINDFROM : LA_FLG_BINDTO;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *user, uintptr_t *definer, unsigned int *flags,
                       const char *name)
{
    (void)index;
    (void)definer;
    (void)flags;
    if (*user != CUDART || strcmp(name, "dlsym") != 0)
        return symbol->st_value;
    real_dlsym = (__typeof__(real_dlsym))symbol->st_value;
    return (uintptr_t)audited_dlsym;
}

#include "objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* glibc and musl use different names for the list. Both are weak, so that each loader accepts this library. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));

HAMI_EARLY static const struct link_map *first_object(void)
{
    if (&_r_debug)
        return _r_debug.r_map;
    return &_dl_debug_addr ? _dl_debug_addr->r_map : NULL;
}

struct symbols {
    const ElfW(Sym) *table;
    const char *names;
    const uint32_t *hash;
};

HAMI_EARLY static const void *absolute(const struct link_map *object, ElfW(Addr) address)
{
    return (const void *)(address < object->l_addr ? object->l_addr + address : address);
}

HAMI_EARLY static bool read_symbols(const struct link_map *object, struct symbols *symbols)
{
    *symbols = (struct symbols){NULL, NULL, NULL};
    for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols->table = absolute(object, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            symbols->names = absolute(object, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            symbols->hash = absolute(object, entry->d_un.d_ptr);
    }
    return symbols->table && symbols->names && symbols->hash;
}

HAMI_EARLY static bool is_same(const char *first, const char *second)
{
    while (*first && *first == *second) {
        first++;
        second++;
    }
    return *first == *second;
}

/*
 * Return the function that an object exports under a name, or NULL.
 * Source: https://sourceware.org/legacy-ml/binutils/2006-10/msg00377.html
 */
HAMI_EARLY static void *exported(const struct link_map *object, const char *name)
{
    struct symbols symbols;
    uint32_t hash = 5381, count, first, bloom, index;
    const uint32_t *buckets, *chain;

    if (!read_symbols(object, &symbols))
        return NULL;
    for (const char *letter = name; *letter; letter++)
        hash = hash * 33 + (unsigned char)*letter;
    count = symbols.hash[0];
    first = symbols.hash[1];
    bloom = symbols.hash[2];
    buckets = symbols.hash + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    chain = buckets + count;
    index = count ? buckets[hash % count] : 0;
    for (; index >= first; index++) {
        const ElfW(Sym) *symbol = &symbols.table[index];

        if ((chain[index - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            is_same(symbols.names + symbol->st_name, name))
            return (void *)(object->l_addr + symbol->st_value);
        if (chain[index - first] & 1)
            break;
    }
    return NULL;
}

HAMI_EARLY static void *defined_from(const struct link_map *object, const char *name)
{
    void *found = NULL;

    for (; object && !found; object = object->l_next)
        found = object->l_ld == _DYNAMIC ? NULL : exported(object, name);
    return found;
}

HAMI_EARLY void *hami_object_next_definition(const char *name)
{
    const struct link_map *own = first_object();
    void *found;

    while (own && own->l_ld != _DYNAMIC)
        own = own->l_next;
    found = defined_from(own, name);
    return found ? found : defined_from(first_object(), name);
}

/* Return the object after the one that contains an address. The program, which is first, may be at any address. */
static const struct link_map *after(const void *address)
{
    const struct link_map *object = first_object();
    Dl_info info;

    if (!object || !dladdr(address, &info))
        return NULL;
    while (object && object->l_addr != (ElfW(Addr))info.dli_fbase)
        object = object->l_next;
    return object ? object->l_next : first_object()->l_next;
}

void *hami_object_definition_after(const void *address, const char *name)
{
    return defined_from(after(address), name);
}

const char *hami_object_file(const char *name, size_t length)
{
    for (const struct link_map *object = first_object(); object; object = object->l_next) {
        const char *slash = strrchr(object->l_name, '/');

        if (strncmp(slash ? slash + 1 : object->l_name, name, length) == 0)
            return object->l_name;
    }
    return NULL;
}

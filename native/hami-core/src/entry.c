#include "entry.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hooks.h"

/* The newest CUDA version whose symbols the tables were checked against; later ones may have changed types. */
#define NEWEST_KNOWN_CUDA 13050

/*
 * Sanitizer runtimes call dlsym while they start, before instrumented code may run. What a name that is not ours passes through is
 * never instrumented, and calls nothing they intercept.
 */
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

typedef void *(*dlsym_type)(void *, const char *);
typedef void *(*dlvsym_type)(void *, const char *, const char *);

/*
 * The real dlsym cannot be asked for: every name for it is ours. It is read from the symbol tables of the objects that the dynamic
 * linker lists for debuggers (https://sourceware.org/glibc/wiki/LinkerInterface), without a call. Those that are there at start never
 * go away. glibc and musl name the list differently; neither may refuse to load this library for want of the other's name.
 */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));

EARLY static const struct link_map *first_object(void)
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

EARLY static const void *absolute(const struct link_map *object, ElfW(Addr) address)
{
    return (const void *)(address < object->l_addr ? object->l_addr + address : address);
}

EARLY static bool read_symbols(const struct link_map *object, struct symbols *symbols)
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

EARLY static bool is_same(const char *first, const char *second)
{
    while (*first && *first == *second) {
        first++;
        second++;
    }
    return *first == *second;
}

/* The function that an object exports under a name, or NULL. Source: https://sourceware.org/legacy-ml/binutils/2006-10/msg00377.html */
EARLY static void *exported(const struct link_map *object, const char *name)
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

        if ((chain[index - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF && is_same(symbols.names + symbol->st_name, name))
            return (void *)(object->l_addr + symbol->st_value);
        if (chain[index - first] & 1)
            break;
    }
    return NULL;
}

EARLY static void *defined_from(const struct link_map *object, const char *name)
{
    void *found = NULL;

    for (; object && !found; object = object->l_next)
        found = object->l_ld == _DYNAMIC ? NULL : exported(object, name);
    return found;
}

/* The first definition after this library's, as RTLD_NEXT has it; the first of all when this library was loaded late. */
EARLY static void *next_definition(const char *name)
{
    const struct link_map *own = first_object();
    void *found;

    while (own && own->l_ld != _DYNAMIC)
        own = own->l_next;
    found = defined_from(own, name);
    return found ? found : defined_from(first_object(), name);
}

EARLY static void *real_lookup(_Atomic(void *) *known, const char *name)
{
    void *found = atomic_load_explicit(known, memory_order_acquire);

    if (!found) {
        found = next_definition(name);
        atomic_store_explicit(known, found, memory_order_release);
    }
    return found;
}

EARLY static void *real_dlsym(void)
{
    static _Atomic(void *) known;

    return real_lookup(&known, "dlsym");
}

EARLY static void *real_dlvsym(void)
{
    static _Atomic(void *) known;

    return real_lookup(&known, "dlvsym");
}

void *hami_real_dlsym(void *handle, const char *symbol)
{
    dlsym_type real = (dlsym_type)real_dlsym();

    return real ? real(handle, symbol) : NULL;
}

void *hami_real_dlvsym(void *handle, const char *symbol, const char *version)
{
    dlvsym_type real = (dlvsym_type)real_dlvsym();

    return real ? real(handle, symbol, version) : NULL;
}

static struct hami_lookup answer(void *function)
{
    return (struct hami_lookup){function, NULL};
}

/* Fail as the real dlsym fails, dlerror and all: libc has none of the driver's names. */
static struct hami_lookup not_there(const char *symbol)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

    return answer(libc ? hami_real_dlsym(libc, symbol) : NULL);
}

/* `cuInit` and `nvmlInit`, not `curl_easy_init` nor `cublasCreate`. */
EARLY static bool begins_like_ours(const char *symbol)
{
    const char *rest = symbol[0] == 'c' && symbol[1] == 'u' ? symbol + 2
                       : symbol[0] == 'n' && symbol[1] == 'v' && symbol[2] == 'm' && symbol[3] == 'l' ? symbol + 4
                                                                                                     : "";

    return *rest >= 'A' && *rest <= 'Z';
}

/* A lookup that is the tables' business. */
struct question {
    const struct hami_hook_row *row;
    void *real; /* what the driver in this process has under the symbol, or NULL */
};

/* Whether a lookup is: not one that this library makes, nor the driver's own, as WSL's stub makes them. */
static bool is_asked(const char *symbol, const void *caller, struct question *question)
{
    const struct hami_hook_row *row = hami_inside ? NULL : hami_hook_of_symbol(symbol);
    bool is_here = row && hami_hooks_find(row->library);

    if (!row || (is_here && hami_is_driver_code(row->library, caller)))
        return false;
    *question = (struct question){row, is_here ? hami_hook_real(row) : NULL};
    return true;
}

/* `found` is what the real lookup said last, so that dlerror tells of it and of nothing that was done here. */
static struct hami_lookup answer_to(const struct question *question, void *found)
{
    if (found == question->row->hook && !question->real)
        return not_there(question->row->symbol);
    return answer(found && found == question->real ? question->row->hook : found);
}

/* The object after the one that an address lies in; the program, the first, may be anywhere. */
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

/*
 * RTLD_NEXT is the real lookup's to answer, except that after a caller that comes before this library it would find a hook of what the
 * driver lacks, and after one that comes later the driver's own function.
 */
static struct hami_lookup answer_next(const struct question *question, const void *caller, void *real_lookup)
{
    void *found = defined_from(after(caller), question->row->symbol);

    if (found && found == question->real)
        return answer(question->row->hook);
    if (!question->real)
        return found ? answer(found) : not_there(question->row->symbol);
    return (struct hami_lookup){NULL, real_lookup};
}

EARLY struct hami_lookup hami_decide_dlsym(void *handle, const char *symbol, const void *unused, const void *caller)
{
    struct question question;

    (void)unused;
    if (!symbol || !begins_like_ours(symbol) || !is_asked(symbol, caller, &question))
        return (struct hami_lookup){NULL, real_dlsym()};
    if (handle == RTLD_NEXT)
        return answer_next(&question, caller, real_dlsym());
    return answer_to(&question, hami_real_dlsym(handle, symbol));
}

EARLY struct hami_lookup hami_decide_dlvsym(void *handle, const char *symbol, const char *version, const void *caller)
{
    struct question question;

    if (!symbol || handle == RTLD_NEXT || !begins_like_ours(symbol) || !is_asked(symbol, caller, &question))
        return (struct hami_lookup){NULL, real_dlvsym()};
    return answer_to(&question, hami_real_dlvsym(handle, symbol, version));
}

static bool is_exported(const void *function)
{
    Dl_info info;

    return dladdr(function, &info) && info.dli_saddr == function;
}

/*
 * The hook for what the driver answered, or the driver's answer itself. A driver may keep entries apart from its exported symbols:
 * such an address belongs to no symbol, and the name, version and flags say which one it implements.
 */
static void *hook_for(void *found, const char *name, int version, cuuint64_t flags)
{
    const struct hami_hook_row *row = hami_hook_of_answer(name, found);

    if (row)
        return row->hook;
    row = hami_hook_of_name(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    if (!row || row->is_forward || !hami_hook_real(row) || version > NEWEST_KNOWN_CUDA || is_exported(found))
        return found;
    return row->hook;
}

HAMI_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *status)
{
    __typeof__(&cuGetProcAddress_v2) real = HAMI_REAL_CUDA(cuGetProcAddress_v2);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && symbol && function && *function && !hami_inside)
        *function = hook_for(*function, symbol, version, flags);
    return result;
}

HAMI_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    __typeof__(&cuGetProcAddress) real = HAMI_REAL_CUDA(cuGetProcAddress);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && symbol && function && *function && !hami_inside)
        *function = hook_for(*function, symbol, version, flags);
    return result;
}

#include "lookup.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "deep_binding.h"
#include "dlsym.h"
#include "hooks.h"
#include "objects.h"

/* The newest CUDA version that the tables were checked against. Later ones may have changed types. */
#define NEWEST_KNOWN_CUDA 13050

static struct hami_lookup answer(void *function)
{
    return (struct hami_lookup){function, NULL};
}

/* Fail as the real dlsym does, and set dlerror: libc has none of the driver's names. */
static struct hami_lookup not_there(const char *symbol)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

    return answer(libc ? hami_real_dlsym(libc, symbol) : NULL);
}

/* Whether a name begins like the driver's: `cuInit` and `nvmlInit` do, `curl_easy_init` and `cublasCreate` do not. */
HAMI_EARLY static bool begins_like_ours(const char *symbol)
{
    const char *rest = symbol[0] == 'c' && symbol[1] == 'u'                                           ? symbol + 2
                       : symbol[0] == 'n' && symbol[1] == 'v' && symbol[2] == 'm' && symbol[3] == 'l' ? symbol + 4
                                                                                                      : "";

    return *rest >= 'A' && *rest <= 'Z';
}

/* A lookup of a symbol in the tables. */
struct question {
    const struct hami_hook_row *row;
    void *real; /* the driver's function of that name, or NULL */
};

/*
 * Whether the tables answer a lookup. They do not answer this library's own lookups, nor those of the driver's library (WSL's stub
 * makes such).
 */
static bool is_asked(const char *symbol, const void *caller, struct question *question)
{
    const struct hami_hook_row *row = hami_inside ? NULL : hami_hook_of_symbol(symbol);
    bool is_here = row && hami_hooks_find(row->library);

    if (!row || (is_here && hami_is_driver_code(row->library, caller)))
        return false;
    *question = (struct question){row, is_here ? hami_hook_real(row) : NULL};
    return true;
}

/* A program has opened another file of the driver. Its functions are its own: a mixture of two drivers would not work. */
static void note_second_driver(const struct question *question, const void *found)
{
    static _Atomic bool is_told;
    const char *name;
    Dl_info info;

    if (!dladdr(found, &info) || !(name = strrchr(info.dli_fname, '/')) ||
        strncmp(name + 1, question->row->library == HAMI_LIBRARY_CUDA ? "libcuda.so" : "libnvidia-ml.so", 10) != 0)
        return;
    if (!atomic_exchange(&is_told, true))
        hami_tell_unhooked_load(HAMI_SECOND_DRIVER, info.dli_fname);
}

/* `found` is the answer of the last real lookup, so dlerror describes that lookup. */
static struct hami_lookup answer_to(const struct question *question, void *found)
{
    if (found == question->row->hook && !question->real)
        return not_there(question->row->symbol);
    if (found && question->real && found != question->real && found != question->row->hook)
        note_second_driver(question, found);
    return answer(found && found == question->real ? question->row->hook : found);
}

/*
 * RTLD_NEXT is left to the real lookup, with two exceptions. After a caller that comes before this library it would find the hook
 * of a function that the driver lacks. After a caller that comes later it would find the driver's own function.
 */
static struct hami_lookup answer_next(const struct question *question, const void *caller, void *real_lookup)
{
    void *found = hami_object_definition_after(caller, question->row->symbol);

    if (found && found == question->real)
        return answer(question->row->hook);
    if (!question->real)
        return found ? answer(found) : not_there(question->row->symbol);
    return (struct hami_lookup){NULL, real_lookup};
}

HAMI_EARLY static void rebind_deeply_bound(void)
{
    if (__builtin_expect(atomic_load_explicit(&hami_deep_binding_is_expected, memory_order_relaxed), 0))
        hami_deep_binding_rebind();
}

HAMI_EARLY struct hami_lookup hami_decide_dlsym(void *handle, const char *symbol, const void *unused, const void *caller)
{
    struct question question;

    (void)unused;
    rebind_deeply_bound();
    if (!symbol || !begins_like_ours(symbol) || !is_asked(symbol, caller, &question))
        return (struct hami_lookup){NULL, hami_libc_dlsym()};
    if (handle == RTLD_NEXT)
        return answer_next(&question, caller, hami_libc_dlsym());
    return answer_to(&question, hami_real_dlsym(handle, symbol));
}

HAMI_EARLY struct hami_lookup hami_decide_dlvsym(void *handle, const char *symbol, const char *version, const void *caller)
{
    struct question question;

    rebind_deeply_bound();
    if (!symbol || handle == RTLD_NEXT || !begins_like_ours(symbol) || !is_asked(symbol, caller, &question))
        return (struct hami_lookup){NULL, hami_libc_dlvsym()};
    return answer_to(&question, hami_real_dlvsym(handle, symbol, version));
}

HAMI_EARLY struct hami_lookup hami_decide_dlopen(const char *file, int mode, const void *unused, const void *caller)
{
    (void)file;
    (void)unused;
    (void)caller;
    if (mode & RTLD_DEEPBIND)
        hami_deep_binding_expect();
    return (struct hami_lookup){NULL, hami_libc_dlopen()};
}

HAMI_EARLY struct hami_lookup hami_decide_dlmopen(long link_namespace, const char *file, int mode, const void *caller)
{
    (void)caller;
    if (link_namespace != LM_ID_BASE)
        hami_tell_unhooked_load(HAMI_OTHER_NAMESPACE, file ? file : "the program");
    else if (mode & RTLD_DEEPBIND)
        hami_deep_binding_expect();
    return (struct hami_lookup){NULL, hami_libc_dlmopen()};
}

static bool is_exported(const void *function)
{
    Dl_info info;

    return dladdr(function, &info) && info.dli_saddr == function;
}

/*
 * Return the hook for the driver's answer, or the answer itself. A driver may return addresses that belong to no exported symbol.
 * Then the name, version and flags say which symbol it is.
 */
static void *hook_for(void *found, const char *name, int version, cuuint64_t flags)
{
    const struct hami_hook_row *row = hami_hook_of_answer(name, found);

    if (row)
        return row->hook;
    row = hami_hook_of_name(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    if (!row || !hami_hook_real(row) || version > NEWEST_KNOWN_CUDA || is_exported(found))
        return found;
    return row->hook;
}

/* Put the hook in place of what the driver has found. */
static CUresult answer_name(CUresult result, const char *name, void **function, int version, cuuint64_t flags)
{
    if (result == CUDA_SUCCESS && name && function && *function && !hami_inside)
        *function = hook_for(*function, name, version, flags);
    return result;
}

/* Flags that choose no variant choose the legacy one, and in the _ptsz functions the per-thread one. Source: cuda.h. */
static cuuint64_t per_thread_unless_chosen(cuuint64_t flags)
{
    const cuuint64_t chosen = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

    return flags & chosen ? flags : flags | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

HAMI_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *status)
{
    return answer_name(HAMI_REAL_CUDA(cuGetProcAddress_v2)(symbol, function, version, flags, status), symbol, function, version,
                       flags);
}

HAMI_EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                              CUdriverProcAddressQueryResult *status)
{
    return answer_name(HAMI_REAL_CUDA(cuGetProcAddress_v2_ptsz)(symbol, function, version, flags, status), symbol, function,
                       version, per_thread_unless_chosen(flags));
}

HAMI_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return answer_name(HAMI_REAL_CUDA(cuGetProcAddress)(symbol, function, version, flags), symbol, function, version, flags);
}

HAMI_EXPORT CUresult cuGetProcAddress_ptsz(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return answer_name(HAMI_REAL_CUDA(cuGetProcAddress_ptsz)(symbol, function, version, flags), symbol, function, version,
                       per_thread_unless_chosen(flags));
}

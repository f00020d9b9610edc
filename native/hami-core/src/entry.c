#include "entry.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "hooks.h"

/* The newest CUDA version whose symbols the tables were checked against; later ones may have changed types. */
#define NEWEST_KNOWN_CUDA 13030

/*
 * Sanitizer runtimes call dlsym while they start, before instrumented code may run. What a name that is not ours passes through is
 * never instrumented, and calls nothing they intercept.
 */
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

typedef void *(*dlsym_type)(void *, const char *);

EARLY static dlsym_type find_dlsym(void)
{
    /* x86-64's first version, aarch64's first, and the one since libdl became part of libc. */
    static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"};

    for (size_t index = 0; index < sizeof(versions) / sizeof(versions[0]); index++) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", versions[index]);

        if (found)
            return (dlsym_type)found;
    }
    return NULL;
}

EARLY static dlsym_type libc_dlsym(void)
{
    static _Atomic(dlsym_type) known;
    dlsym_type found = atomic_load_explicit(&known, memory_order_acquire);

    if (!found) {
        found = find_dlsym();
        atomic_store_explicit(&known, found, memory_order_release);
    }
    return found;
}

void *hami_real_dlsym(void *handle, const char *symbol)
{
    dlsym_type real = libc_dlsym();

    return real ? real(handle, symbol) : NULL;
}

/*
 * The exported dlsym. It is assembly because a name that is not ours, and every RTLD_NEXT, must reach the real dlsym as if the caller
 * had called it: glibc finds the caller's library from the return address.
 */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rdx\n"
        "    call hami_decide_dlsym\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rdx, %rdx\n"
        "    jnz 1f\n"
        "    ret\n"
        "1:  jmp *%rdx\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n"
        ".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    stp x29, x30, [sp, #-32]!\n"
        "    .cfi_adjust_cfa_offset 32\n"
        "    stp x0, x1, [sp, #16]\n"
        "    mov x2, x30\n"
        "    bl hami_decide_dlsym\n"
        "    mov x2, x0\n"
        "    mov x16, x1\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_adjust_cfa_offset -32\n"
        "    cbnz x16, 1f\n"
        "    mov x0, x2\n"
        "    ret\n"
        "1:  br x16\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n"
        ".popsection\n");
#else
#error "libvgpu.so is for x86-64 and aarch64"
#endif

EARLY static struct hami_dlsym_decision go_on(void)
{
    return (struct hami_dlsym_decision){NULL, (void *)libc_dlsym()};
}

static struct hami_dlsym_decision answer(void *function)
{
    return (struct hami_dlsym_decision){function, NULL};
}

/* Fail as the real dlsym fails, dlerror and all: libdl has none of the driver's names. */
static struct hami_dlsym_decision not_there(const char *symbol)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

    return answer(libc ? hami_real_dlsym(libc, symbol) : NULL);
}

EARLY static bool begins_like_ours(const char *symbol)
{
    return (symbol[0] == 'c' && symbol[1] == 'u') ||
           (symbol[0] == 'n' && symbol[1] == 'v' && symbol[2] == 'm' && symbol[3] == 'l');
}

static struct hami_dlsym_decision decide(void *handle, const char *symbol, const void *caller)
{
    const struct hami_hook_row *row = hami_hook_of_symbol(symbol);
    bool is_here;
    void *found;

    if (!row || hami_inside)
        return go_on();
    is_here = hami_hooks_find(row->library);
    if (is_here && hami_is_driver_code(row->library, caller))
        return go_on();
    found = hami_real_dlsym(handle, symbol);
    if (found == row->hook)
        return is_here && *row->real ? answer(row->hook) : not_there(symbol);
    return answer(found && is_here && found == *row->real ? row->hook : found);
}

EARLY struct hami_dlsym_decision hami_decide_dlsym(void *handle, const char *symbol, const void *caller)
{
    if (!symbol || handle == RTLD_NEXT || !begins_like_ours(symbol))
        return go_on();
    return decide(handle, symbol, caller);
}

/* The newest symbol of a name that is not newer than `version`, as the driver chooses. */
static const struct hami_hook_row *row_for(const char *name, int version, bool is_per_thread)
{
    const struct hami_hook_row *best = NULL;

    for (int index = 0; index < HAMI_HOOKS_CUDA; index++) {
        const struct hami_hook_row *row = &hami_hook_rows[index];

        if (row->is_per_thread == is_per_thread && row->since <= version && (!best || row->since > best->since) &&
            strcmp(row->name, name) == 0)
            best = row;
    }
    return best;
}

/*
 * The hook for what the driver answered, or the driver's answer itself. A driver may keep entries apart from its exported symbols:
 * such an address belongs to no symbol, and the name, version and flags say which one it implements.
 */
static void *hook_for(void *found, const char *name, int version, cuuint64_t flags)
{
    const struct hami_hook_row *row = hami_hook_of_real(found);
    Dl_info info;

    if (row)
        return row->hook;
    if (version > NEWEST_KNOWN_CUDA || (dladdr(found, &info) && info.dli_saddr == found))
        return found;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        row = row_for(name, version, true);
    if (!row)
        row = row_for(name, version, false);
    return row && *row->real ? row->hook : found;
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

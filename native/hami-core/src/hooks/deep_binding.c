#include "deep_binding.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dlsym.h"
#include "hooks.h"

#if defined(__x86_64__)
#define IS_CALL(type) ((type) == R_X86_64_JUMP_SLOT)
#define IS_ADDRESS(type) ((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#else
#define IS_CALL(type) ((type) == R_AARCH64_JUMP_SLOT)
#define IS_ADDRESS(type) ((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#endif

_Atomic bool hami_deep_binding_is_expected;
static _Atomic long first_object = -1;          /* the place of the first that may be bound deeply, as dl_iterate_phdr() counts */
static _Atomic unsigned long long rebound_adds; /* how many objects had been loaded when references were changed last */

/* Which objects there are. */

static int count_object(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)info;
    (void)size;
    ++*(long *)count;
    return 0;
}

static int read_adds(struct dl_phdr_info *info, size_t size, void *adds)
{
    (void)size;
    *(unsigned long long *)adds = info->dlpi_adds;
    return 1;
}

void hami_deep_binding_expect(void)
{
    long count = 0, none = -1;

    dl_iterate_phdr(count_object, &count);
    atomic_compare_exchange_strong(&first_object, &none, count);
    atomic_store(&hami_deep_binding_is_expected, true);
}

/* An object: where it is, its symbols, and its references in two tables. */
struct object {
    uintptr_t base, end;
    uintptr_t read_only_from, read_only_to; /* what the dynamic linker protected after it had bound the object */
    const ElfW(Sym) *symbols;
    const char *names, *soname;
    struct {
        const ElfW(Rela) *first;
        size_t bytes;
    } references[2];
};

static uintptr_t absolute(const struct object *object, ElfW(Addr) address)
{
    return address < object->base ? object->base + address : address;
}

static void read_dynamic(struct object *object, const ElfW(Dyn) *entry)
{
    ElfW(Addr) soname = 0;

    for (; entry && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            object->symbols = (const void *)absolute(object, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            object->names = (const void *)absolute(object, entry->d_un.d_ptr);
            break;
        case DT_SONAME:
            soname = entry->d_un.d_val;
            break;
        case DT_JMPREL:
            object->references[0].first = (const void *)absolute(object, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            object->references[0].bytes = entry->d_un.d_val;
            break;
        case DT_RELA:
            object->references[1].first = (const void *)absolute(object, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            object->references[1].bytes = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    object->soname = object->names && soname ? object->names + soname : "";
}

static void read_object(struct object *object, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    *object = (struct object){.base = info->dlpi_addr};
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[index];
        uintptr_t from = info->dlpi_addr + segment->p_vaddr, to = from + segment->p_memsz;

        if (segment->p_type == PT_LOAD && to > object->end)
            object->end = to;
        else if (segment->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)from;
        else if (segment->p_type == PT_GNU_RELRO) {
            object->read_only_from = from / page * page;
            object->read_only_to = to / page * page;
        }
    }
    read_dynamic(object, dynamic);
}

/* The driver's own references are its own. */
static bool is_driver(const struct object *object)
{
    return strncmp(object->soname, "libcuda.so", 10) == 0 || strncmp(object->soname, "libnvidia-", 10) == 0;
}

/* References */

/* A function with a hook, and the real one. */
struct replacement {
    void *real, *hook;
};

static bool find_replacement(const char *name, struct replacement *found)
{
    const struct hami_hook_row *row;

    if (strcmp(name, "dlsym") == 0)
        *found = (struct replacement){hami_libc_dlsym(), (void *)dlsym};
    else if (strcmp(name, "dlvsym") == 0)
        *found = (struct replacement){hami_libc_dlvsym(), (void *)dlvsym};
    else if (strcmp(name, "dlopen") == 0)
        *found = (struct replacement){hami_libc_dlopen(), (void *)dlopen};
    else if (strcmp(name, "dlmopen") == 0)
        *found = (struct replacement){hami_libc_dlmopen(), (void *)dlmopen};
    else if ((strncmp(name, "cu", 2) == 0 || strncmp(name, "nvml", 4) == 0) && (row = hami_hook_of_symbol(name)))
        *found = (struct replacement){hami_hook_real(row), row->hook};
    else
        return false;
    return found->real != NULL;
}

/* A call that is not bound yet leads to code of the object itself, which asks the dynamic linker. */
static bool is_unbound(const struct object *object, unsigned long type, const void *value)
{
    return IS_CALL(type) && (uintptr_t)value >= object->base && (uintptr_t)value < object->end;
}

static bool is_read_only(const struct object *object, const void *place)
{
    return (uintptr_t)place >= object->read_only_from && (uintptr_t)place < object->read_only_to;
}

static bool protect(const struct object *object, int protection)
{
    return mprotect((void *)object->read_only_from, object->read_only_to - object->read_only_from, protection) == 0;
}

static void change_reference(const struct object *object, void **place, void *hook)
{
    bool is_protected = is_read_only(object, place);

    if (is_protected && !protect(object, PROT_READ | PROT_WRITE))
        return;
    __atomic_store_n(place, hook, __ATOMIC_RELEASE);
    if (is_protected)
        protect(object, PROT_READ);
}

static void change_if_hooked(const struct object *object, const ElfW(Rela) *reference)
{
    const ElfW(Sym) *symbol = &object->symbols[ELF64_R_SYM(reference->r_info)];
    unsigned long type = ELF64_R_TYPE(reference->r_info);
    void **place = (void **)(object->base + reference->r_offset);
    struct replacement found;

    if ((!IS_CALL(type) && !IS_ADDRESS(type)) || reference->r_addend || symbol->st_shndx != SHN_UNDEF ||
        !find_replacement(object->names + symbol->st_name, &found))
        return;
    if (*place == found.real || is_unbound(object, type, *place))
        change_reference(object, place, found.hook);
}

static int rebind_object(struct dl_phdr_info *info, size_t size, void *place)
{
    struct object object;

    (void)size;
    if ((*(long *)place)++ < atomic_load(&first_object))
        return 0;
    read_object(&object, info);
    if (!object.symbols || !object.names || is_driver(&object))
        return 0;
    for (int table = 0; table < 2; table++)
        for (size_t index = 0; object.references[table].first && index < object.references[table].bytes / sizeof(ElfW(Rela));
             index++)
            change_if_hooked(&object, &object.references[table].first[index]);
    return 0;
}

void hami_deep_binding_rebind(void)
{
    unsigned long long adds = 0;
    long place = 0;

    dl_iterate_phdr(read_adds, &adds);
    if (atomic_exchange(&rebound_adds, adds) == adds)
        return;
    hami_hooks_find(HAMI_LIBRARY_CUDA);
    hami_hooks_find(HAMI_LIBRARY_NVML);
    dl_iterate_phdr(rebind_object, &place);
}

/*
 * Device memory of the fake driver.
 *
 * An address is one in a large private mapping of the process, so that copies and memsets work on ordinary host memory that exists
 * only once touched; what counts is the physical memory taken from the hardware. Freed addresses are reused by size class.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_fake.h"

#define ARENA_BYTES ((uint64_t)1 << 40)
#define LOW_BASE 0x10000000u
#define UNIT 512u
#define TABLE_START 1024u

enum { CLASSES = 48 };
enum kind { EMPTY, PHYSICAL, RESERVED, MAPPED };

struct allocation {
    uint64_t address, bytes;
    enum kind kind;
    int ordinal;
    struct vmm_block *block;
};

struct vmm_block {
    uint64_t bytes;
    int physical;
    int references; /* handles and mappings */
};

struct CUmemPoolHandle_st {
    int ordinal;
};

struct free_address {
    uint64_t address;
    struct free_address *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *table;
static uint64_t table_room, table_used;
static uint64_t arena, arena_next;
static uint32_t low_next = LOW_BASE;
static struct free_address *free_addresses[CLASSES];
static struct free_address *spare_nodes;
static struct CUmemPoolHandle_st default_pools[HW_DEVICES_MAX];

static uint64_t slot_of(uint64_t address)
{
    return (address / UNIT * 0x9e3779b97f4a7c15u >> 20) & (table_room - 1);
}

static struct allocation *find(uint64_t address)
{
    if (!table_room)
        return NULL;
    for (uint64_t slot = slot_of(address); table[slot].kind != EMPTY; slot = (slot + 1) & (table_room - 1))
        if (table[slot].address == address)
            return &table[slot];
    return NULL;
}

static void place(struct allocation allocation)
{
    uint64_t slot = slot_of(allocation.address);

    while (table[slot].kind != EMPTY)
        slot = (slot + 1) & (table_room - 1);
    table[slot] = allocation;
}

static bool insert(struct allocation allocation)
{
    if (table_used * 2 >= table_room) {
        struct allocation *old = table;
        uint64_t old_room = table_room;
        uint64_t room = old_room ? old_room * 2 : TABLE_START;
        struct allocation *fresh = calloc(room, sizeof(*fresh));

        if (!fresh)
            return false;
        table = fresh;
        table_room = room;
        for (uint64_t slot = 0; slot < old_room; slot++)
            if (old[slot].kind != EMPTY)
                place(old[slot]);
        free(old);
    }
    place(allocation);
    table_used++;
    return true;
}

static void erase(struct allocation *allocation)
{
    uint64_t hole = (uint64_t)(allocation - table);
    uint64_t slot = hole;

    for (;;) {
        slot = (slot + 1) & (table_room - 1);
        if (table[slot].kind == EMPTY)
            break;
        uint64_t home = slot_of(table[slot].address);

        if (((slot - home) & (table_room - 1)) >= ((slot - hole) & (table_room - 1))) {
            table[hole] = table[slot];
            hole = slot;
        }
    }
    table[hole].kind = EMPTY;
    table_used--;
}

static int class_of(uint64_t bytes)
{
    int class = 0;

    while (((uint64_t)UNIT << class) < bytes)
        class++;
    return class;
}

static uint64_t take_address(uint64_t bytes)
{
    int class = class_of(bytes);
    struct free_address *node = free_addresses[class];
    uint64_t address;

    if (node) {
        free_addresses[class] = node->next;
        node->next = spare_nodes;
        spare_nodes = node;
        return node->address;
    }
    if (!arena) {
        void *mapping = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (mapping == MAP_FAILED)
            return 0;
        arena = arena_next = ((uint64_t)mapping + HW_GRANULE_BYTES - 1) & ~(HW_GRANULE_BYTES - 1);
    }
    if (arena_next - arena + ((uint64_t)UNIT << class) > ARENA_BYTES - HW_GRANULE_BYTES)
        return 0;
    address = arena_next;
    arena_next += (uint64_t)UNIT << class;
    return address;
}

static void give_address(uint64_t address, uint64_t bytes)
{
    struct free_address *node = spare_nodes;
    int class = class_of(bytes);

    if (address < arena)
        return;
    if (node)
        spare_nodes = node->next;
    else
        node = malloc(sizeof(*node));
    if (!node)
        return;
    if (bytes >= HW_SMALL_BYTES)
        madvise((void *)address, bytes & ~(uint64_t)4095, MADV_DONTNEED);
    *node = (struct free_address){address, free_addresses[class]};
    free_addresses[class] = node;
}

static CUresult allocate(CUdeviceptr *pointer, uint64_t bytes, int ordinal, bool is_low)
{
    uint64_t address;

    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > ARENA_BYTES / 2 || !hw_memory_take(fake_physical(ordinal), bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&mutex);
    if (is_low) {
        address = low_next;
        low_next += (uint32_t)((bytes + UNIT - 1) & ~(uint64_t)(UNIT - 1));
    } else {
        address = take_address(bytes);
    }
    if (!address || !insert((struct allocation){address, bytes, PHYSICAL, ordinal, NULL})) {
        pthread_mutex_unlock(&mutex);
        hw_memory_give(fake_physical(ordinal), bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&mutex);
    *pointer = address;
    return CUDA_SUCCESS;
}

static CUresult allocate_here(CUdeviceptr *pointer, uint64_t bytes, bool is_low)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    return result == CUDA_SUCCESS ? allocate(pointer, bytes, context->ordinal, is_low) : result;
}

static CUresult release(CUdeviceptr pointer)
{
    struct allocation *found;
    struct allocation freed;
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || !pointer)
        return result;
    pthread_mutex_lock(&mutex);
    found = find(pointer);
    if (!found || found->kind != PHYSICAL) {
        pthread_mutex_unlock(&mutex);
        return CUDA_ERROR_INVALID_VALUE;
    }
    freed = *found;
    erase(found);
    give_address(freed.address, freed.bytes);
    pthread_mutex_unlock(&mutex);
    hw_memory_give(fake_physical(freed.ordinal), freed.bytes);
    return CUDA_SUCCESS;
}

void fake_memory_forget(int ordinal)
{
    pthread_mutex_lock(&mutex);
    for (uint64_t slot = 0; slot < table_room;) {
        if (table[slot].kind == PHYSICAL && table[slot].ordinal == ordinal) {
            struct allocation freed = table[slot];

            erase(&table[slot]);
            give_address(freed.address, freed.bytes);
            hw_memory_give(fake_physical(ordinal), freed.bytes);
        } else {
            slot++;
        }
    }
    pthread_mutex_unlock(&mutex);
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!available || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *total = hw_device(context->physical)->memory_bytes;
    *available = *total - hw_memory_used(context->physical);
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    size_t wide_available, wide_total;
    CUresult result = available && total ? cuMemGetInfo_v2(&wide_available, &wide_total) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS) {
        *available = wide_available > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_available;
        *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_total;
    }
    return result;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    return allocate_here(pointer, bytes, false);
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    CUdeviceptr wide;
    CUresult result = pointer ? allocate_here(&wide, bytes, true) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *pointer = (CUdeviceptr_v1)wide;
    return result;
}

static CUresult allocate_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, bool is_low)
{
    CUresult result;

    if (!pitch || !width || !height)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = (width + UNIT - 1) & ~(size_t)(UNIT - 1);
    result = allocate_here(pointer, *pitch * height, is_low);
    return result;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element_bytes)
{
    (void)element_bytes;
    return allocate_pitch(pointer, pitch, width, height, false);
}

API CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                             unsigned int element_bytes)
{
    CUdeviceptr wide;
    size_t wide_pitch;
    CUresult result;

    (void)element_bytes;
    if (!pointer || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate_pitch(&wide, &wide_pitch, width, height, true);
    if (result == CUDA_SUCCESS) {
        *pointer = (CUdeviceptr_v1)wide;
        *pitch = (unsigned int)wide_pitch;
    }
    return result;
}

/* Managed memory is modelled as resident on the device it was allocated for. */
API CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return allocate_here(pointer, bytes, false);
}

API CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return release(pointer);
}

API CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    return release(pointer);
}

/* Pools: stream order is modelled as immediate, and a pool keeps nothing back. */

EXTRA(cuDeviceGetDefaultMemPool, CUmemoryPool *pool, CUdevice device)
{
    if (!pool || fake_physical(device) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    default_pools[device].ordinal = device;
    *pool = &default_pools[device];
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || !properties || fake_physical(properties->location.id) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = malloc(sizeof(**pool));
    if (!*pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*pool)->ordinal = properties->location.id;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool < default_pools || pool >= default_pools + HW_DEVICES_MAX)
        free(pool);
    return CUDA_SUCCESS;
}

EXTRA(cuMemPoolTrimTo, CUmemoryPool pool, size_t keep)
{
    (void)keep;
    return pool ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult allocate_on_stream(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    CUcontext context;
    CUresult result = cuStreamGetCtx(stream, &context);

    return result == CUDA_SUCCESS ? allocate(pointer, bytes, context->ordinal, false) : result;
}

API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate_on_stream(pointer, bytes, stream);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate_on_stream(pointer, bytes, stream);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)stream;
    return pool ? allocate(pointer, bytes, pool->ordinal, false) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
}

API CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    (void)stream;
    return pointer ? release(pointer) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return cuMemFreeAsync(pointer, stream);
}

/* Virtual memory management: physical memory lives until its handle is released and its last mapping is gone. */

API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                         unsigned long long flags)
{
    struct vmm_block *block;
    int physical;

    (void)flags;
    if (!handle || !properties || !bytes || bytes % HW_GRANULE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    physical = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? fake_physical(properties->location.id) : -1;
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && physical < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    block = malloc(sizeof(*block));
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (physical >= 0 && !hw_memory_take(physical, bytes)) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *block = (struct vmm_block){bytes, physical, 1};
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)block;
    return CUDA_SUCCESS;
}

static void drop(struct vmm_block *block)
{
    if (--block->references)
        return;
    if (block->physical >= 0)
        hw_memory_give(block->physical, block->bytes);
    free(block);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    drop((struct vmm_block *)(uintptr_t)handle);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct allocation *mapping;

    pthread_mutex_lock(&mutex);
    mapping = find((uint64_t)(uintptr_t)address);
    if (handle && mapping && mapping->kind == MAPPED) {
        mapping->block->references++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)mapping->block;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

EXTRA(cuMemGetAllocationGranularity, size_t *granularity, const CUmemAllocationProp *properties, int option)
{
    (void)properties;
    (void)option;
    if (!granularity)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = HW_GRANULE_BYTES;
    return CUDA_SUCCESS;
}

API CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    (void)bytes;
    return pointer && access && count ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address,
                                 unsigned long long flags)
{
    (void)alignment;
    (void)address;
    (void)flags;
    if (!pointer || !bytes || bytes % HW_GRANULE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    *pointer = take_address(bytes);
    pthread_mutex_unlock(&mutex);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    give_address(pointer, bytes);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags)
{
    struct vmm_block *block = (struct vmm_block *)(uintptr_t)handle;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    (void)offset;
    (void)flags;
    pthread_mutex_lock(&mutex);
    if (pointer && block && bytes && !find(pointer) && insert((struct allocation){pointer, bytes, MAPPED, -1, block})) {
        block->references++;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

API CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUdeviceptr end = pointer + bytes;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&mutex);
    while (result == CUDA_SUCCESS && pointer < end) {
        struct allocation *mapping = find(pointer);

        if (!mapping || mapping->kind != MAPPED) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            pointer += mapping->bytes;
            drop(mapping->block);
            erase(mapping);
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

bool fake_memory_is_addressable(CUdeviceptr pointer, size_t bytes)
{
    return arena && pointer >= arena && pointer + bytes <= arena_next;
}

/*
 * The address space of the fake driver, and the table of ranges in it. Freed addresses are reused by size class.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/memory/memory.h"

#define ARENA_BYTES_MOST ((uint64_t)1 << 41)
#define ARENA_BYTES_LEAST ((uint64_t)1 << 36)
#define TABLE_START 1024u

enum { CLASSES = 31 };

struct free_address {
    uint64_t address;
    struct free_address *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fake_range *table;
static uint64_t table_room, table_used;
static uint64_t arena, arena_next, arena_end;
static struct free_address *free_addresses[CLASSES];
static struct free_address *spare_nodes;

void fake_memory_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void fake_memory_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static uint64_t slot_of(uint64_t address)
{
    return (address / HW_UNIT_BYTES * 0x9e3779b97f4a7c15u >> 20) & (table_room - 1);
}

struct fake_range *fake_range_at(uint64_t address)
{
    if (!table_room)
        return NULL;
    for (uint64_t slot = slot_of(address); table[slot].kind != FAKE_EMPTY; slot = (slot + 1) & (table_room - 1))
        if (table[slot].address == address)
            return &table[slot];
    return NULL;
}

static void place(struct fake_range range)
{
    uint64_t slot = slot_of(range.address);

    while (table[slot].kind != FAKE_EMPTY)
        slot = (slot + 1) & (table_room - 1);
    table[slot] = range;
}

static bool grow(void)
{
    struct fake_range *old = table;
    uint64_t old_room = table_room;
    uint64_t room = old_room ? old_room * 2 : TABLE_START;
    struct fake_range *fresh = calloc(room, sizeof(*fresh));

    if (!fresh)
        return false;
    table = fresh;
    table_room = room;
    for (uint64_t slot = 0; slot < old_room; slot++)
        if (old[slot].kind != FAKE_EMPTY)
            place(old[slot]);
    free(old);
    return true;
}

bool fake_range_insert(struct fake_range range)
{
    if (table_used * 2 >= table_room && !grow())
        return false;
    place(range);
    table_used++;
    return true;
}

void fake_range_erase(struct fake_range *range)
{
    uint64_t hole = (uint64_t)(range - table);
    uint64_t slot = hole;

    for (;;) {
        slot = (slot + 1) & (table_room - 1);
        if (table[slot].kind == FAKE_EMPTY)
            break;
        uint64_t home = slot_of(table[slot].address);

        if (((slot - home) & (table_room - 1)) >= ((slot - hole) & (table_room - 1))) {
            table[hole] = table[slot];
            hole = slot;
        }
    }
    table[hole].kind = FAKE_EMPTY;
    table_used--;
}

struct fake_range *fake_range_next(struct fake_range *range)
{
    for (uint64_t slot = range ? (uint64_t)(range - table) + 1 : 0; slot < table_room; slot++)
        if (table[slot].kind != FAKE_EMPTY)
            return &table[slot];
    return NULL;
}

/* Ranges begin at multiples of their size class. Mappings begin at granules of a reservation. */
struct fake_range *fake_range_around(uint64_t address)
{
    for (int class = 0; class < CLASSES; class++) {
        struct fake_range *range = fake_range_at(address & ~((HW_UNIT_BYTES << class) - 1));

        if (range && address - range->address < range->bytes)
            return range;
    }
    for (struct fake_range *range = fake_range_next(NULL); range; range = fake_range_next(range))
        if (address >= range->address && address - range->address < range->bytes)
            return range;
    return NULL;
}

static int class_of(uint64_t bytes)
{
    int class = 0;

    while (class < CLASSES && (HW_UNIT_BYTES << class) < bytes)
        class++;
    return class;
}

/* ThreadSanitizer leaves few addresses to a program, so the space is smaller. */
static bool map_arena(void)
{
    for (uint64_t bytes = ARENA_BYTES_MOST; !arena && bytes >= ARENA_BYTES_LEAST; bytes /= 2) {
        void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (mapping != MAP_FAILED) {
            arena = arena_next = (uint64_t)mapping;
            arena_end = arena + bytes;
        }
    }
    return arena;
}

uint64_t fake_address_take(uint64_t bytes)
{
    int class = class_of(bytes);
    struct free_address *node = class < CLASSES ? free_addresses[class] : NULL;
    uint64_t address;

    if (node) {
        free_addresses[class] = node->next;
        node->next = spare_nodes;
        spare_nodes = node;
        return node->address;
    }
    if (class >= CLASSES || !map_arena())
        return 0;
    address = (arena_next + (HW_UNIT_BYTES << class) - 1) & ~((HW_UNIT_BYTES << class) - 1);
    if (address + (HW_UNIT_BYTES << class) > arena_end)
        return 0;
    arena_next = address + (HW_UNIT_BYTES << class);
    return address;
}

void fake_address_give(uint64_t address, uint64_t bytes)
{
    struct free_address *node = spare_nodes;
    int class = class_of(bytes);

    if (address < arena || address >= arena_next || class >= CLASSES)
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

bool fake_memory_is_addressable(CUdeviceptr pointer, size_t bytes)
{
    return arena && pointer >= arena && pointer + bytes <= arena_next;
}

/*
 * Memory that outlives the process that took it: who holds it, and who is charged.
 */
#include <unistd.h>

#include "hardware/state.h"

/* The byte of the state file that an exported block's descriptors hold. The bytes below belong to processes. */
#define EXPORT_POSITION(index) (HW_PROCESSES_MAX + 1 + (index))

static struct hw_block *block_of(uint64_t token)
{
    struct hw_block *block = &hw_state->blocks[token % HW_BLOCKS_MAX];

    return token && block->token == token ? block : NULL;
}

static void set_holder(struct hw_block *block, int position, bool is_holder)
{
    uint64_t bit = (uint64_t)1 << position % 64;

    block->holders[position / 64] = is_holder ? block->holders[position / 64] | bit : block->holders[position / 64] & ~bit;
}

static int next_payer(const struct hw_block *block)
{
    if (block->payer != HW_NOBODY && block->holders[block->payer / 64] >> block->payer % 64 & 1)
        return block->payer;
    for (int word = 0; word < HW_PROCESSES_MAX / 64; word++)
        if (block->holders[word])
            return word * 64 + __builtin_ctzll(block->holders[word]);
    return HW_NOBODY;
}

bool hw_is_passed_on(const struct hw_block *block, int device)
{
    return block->token && block->device == device && hw_state->processes[block->payer].serial != block->maker;
}

/* Let another process have the block among what it uses. */
static void pay(struct hw_block *block, int payer)
{
    struct hw_process *before = &hw_state->processes[block->payer], *after = &hw_state->processes[payer];

    hw_account(block->payer, block->device, block->bytes, false);
    hw_account(payer, block->device, block->bytes, true);
    if (before->serial != block->maker)
        before->device[block->device].imported_bytes -= block->bytes;
    if (after->serial != block->maker)
        after->device[block->device].imported_bytes += block->bytes;
    block->payer = payer;
}

/*
 * Charge a holder: the present one if it still holds the block. If there is no holder, nobody is charged. If there is no open file
 * either, the memory is free.
 */
static void settle(struct hw_block *block)
{
    int payer = next_payer(block);

    if (payer != block->payer)
        pay(block, payer);
    if (payer == HW_NOBODY && !hw_is_held(EXPORT_POSITION((int)(block - hw_state->blocks)))) {
        hw_account(HW_NOBODY, block->device, block->bytes, false);
        hw_state->processes[HW_NOBODY].device[block->device].imported_bytes -= block->bytes;
        block->token = 0;
    }
}

void hw_blocks_collect(void)
{
    for (int index = 0; index < hw_state->blocks_end; index++)
        if (hw_state->blocks[index].token && hw_state->blocks[index].payer == HW_NOBODY)
            settle(&hw_state->blocks[index]);
}

void hw_blocks_forget(int position)
{
    for (int index = 0; index < hw_state->blocks_end; index++) {
        struct hw_block *block = &hw_state->blocks[index];

        if (!block->token)
            continue;
        set_holder(block, position, false);
        if (block->payer == position)
            settle(block);
    }
}

static struct hw_block *free_block(void)
{
    for (int index = 0; index < HW_BLOCKS_MAX; index++) {
        struct hw_block *block = &hw_state->blocks[index];

        if (block->token)
            continue;
        if (index >= hw_state->blocks_end)
            hw_state->blocks_end = index + 1;
        *block = (struct hw_block){.token = ++hw_state->generations * HW_BLOCKS_MAX + (uint64_t)index};
        return block;
    }
    return NULL;
}

uint64_t hw_block_share(int device, uint64_t bytes)
{
    struct hw_block *block = NULL;

    hw_lock();
    if (hw_known_process())
        block = free_block();
    if (block) {
        block->bytes = bytes;
        block->device = device;
        block->payer = hw_position(hw_known_process());
        block->maker = hw_known_process()->serial;
        block->groups = hw_known_process()->groups;
        set_holder(block, block->payer, true);
    }
    hw_unlock();
    return block ? block->token : 0;
}

bool hw_block_hold(uint64_t token, int *device, uint64_t *bytes)
{
    struct hw_block *block;

    hw_lock();
    hw_reap_dead();
    block = hw_this_process() ? block_of(token) : NULL;
    if (block) {
        *device = block->device;
        *bytes = block->bytes;
        set_holder(block, hw_position(hw_known_process()), true);
        settle(block);
    }
    hw_unlock();
    return block != NULL;
}

void hw_block_drop(uint64_t token)
{
    struct hw_block *block;

    hw_lock();
    block = hw_known_process() ? block_of(token) : NULL;
    if (block) {
        set_holder(block, hw_position(hw_known_process()), false);
        settle(block);
    }
    hw_unlock();
}

int hw_block_export(uint64_t token)
{
    int file = hw_open_holding(EXPORT_POSITION((int)(token % HW_BLOCKS_MAX)));

    if (file >= 0)
        lseek(file, (off_t)token, SEEK_SET);
    return file;
}

uint64_t hw_block_of_file(int file)
{
    off_t token = lseek(file, 0, SEEK_CUR);

    return token > 0 && hw_is_state(file) ? (uint64_t)token : 0;
}

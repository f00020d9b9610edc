/*
 * The table of charges: nothing is lost or added, in any order, and time does not grow with the content.
 */
#include <stdlib.h>

#include "charges.h"
#include "check.h"

enum { KEYS = 20000 };

static uint64_t discharged_bytes;

static void count_bytes(const struct hami_charge *charge)
{
    discharged_bytes += charge->bytes;
}

static void what_is_put_is_found_until_taken(void)
{
    struct hami_charge charge, replaced;

    for (uint64_t key = 1; key <= KEYS; key++)
        CHECK(hami_charges_put(&hami_pointers, (struct hami_charge){.key = key * 512, .bytes = key}, &replaced) && !replaced.key);
    CHECK_EQUAL(KEYS, hami_charges_count(&hami_pointers));
    for (uint64_t key = 1; key <= KEYS; key += 2)
        CHECK(hami_charges_take(&hami_pointers, key * 512, &charge) && charge.bytes == key);
    for (uint64_t key = 1; key <= KEYS; key++)
        CHECK(hami_charges_find(&hami_pointers, key * 512, &charge) == (key % 2 == 0));
    CHECK(!hami_charges_take(&hami_pointers, 512, &charge));
    CHECK_EQUAL(KEYS / 2, hami_charges_count(&hami_pointers));
    hami_charges_forget(&hami_pointers);
    CHECK_EQUAL(0, hami_charges_count(&hami_pointers));
}

static void a_reused_key_gives_the_old_charge_back(void)
{
    struct hami_charge replaced;

    CHECK(hami_charges_put(&hami_pointers, (struct hami_charge){.key = 7, .bytes = 100}, &replaced));
    CHECK(hami_charges_put(&hami_pointers, (struct hami_charge){.key = 7, .bytes = 200}, &replaced));
    CHECK_EQUAL(100, replaced.bytes);
    CHECK_EQUAL(1, hami_charges_count(&hami_pointers));
    hami_charges_forget(&hami_pointers);
}

static void the_last_reference_ends_a_charge(void)
{
    struct hami_charge taken, replaced;

    hami_charges_put(&hami_handles, (struct hami_charge){.key = 9, .bytes = 64, .references = 1}, &replaced);
    hami_charges_retain(&hami_handles, 9);
    CHECK(!hami_charges_drop(&hami_handles, 9, &taken));
    CHECK(hami_charges_drop(&hami_handles, 9, &taken) && taken.bytes == 64);
    CHECK(!hami_charges_drop(&hami_handles, 9, &taken));
}

static void an_owner_takes_its_charges_along(void)
{
    struct hami_charge replaced;
    uint64_t expected = 0;

    for (uint64_t key = 1; key <= KEYS; key++) {
        hami_charges_put(&hami_pointers, (struct hami_charge){.key = key, .bytes = key, .owner = key % 3}, &replaced);
        expected += key % 3 == 2 ? key : 0;
    }
    discharged_bytes = 0;
    hami_charges_take_owned(&hami_pointers, 2, count_bytes);
    CHECK_EQUAL(expected, discharged_bytes);
    hami_charges_take_owned(&hami_pointers, 2, count_bytes);
    CHECK_EQUAL(expected, discharged_bytes);
    hami_charges_forget(&hami_pointers);
}

static void each_charge_is_shown_once_and_can_be_resized(void)
{
    struct hami_charges_cursor cursor = {0};
    struct hami_charge charge, replaced;
    int count = 0;

    for (uint64_t key = 1; key <= KEYS; key++)
        hami_charges_put(&hami_pools, (struct hami_charge){.key = key, .bytes = key}, &replaced);
    while (hami_charges_next(&hami_pools, &cursor, &charge)) {
        CHECK_EQUAL(charge.key, charge.bytes);
        count++;
    }
    CHECK_EQUAL(KEYS, count);
    CHECK(hami_charges_mark(&hami_pools, 7, 3));
    CHECK(hami_charges_find(&hami_pools, 7, &charge) && charge.kind == 3);
    CHECK_EQUAL(7, hami_charges_resize(&hami_pools, 7, 100));
    CHECK(hami_charges_find(&hami_pools, 7, &charge) && charge.bytes == 100);
    CHECK_EQUAL(0, hami_charges_resize(&hami_pools, KEYS + 1, 100));
    CHECK(!hami_charges_find(&hami_pools, KEYS + 1, &charge));
    hami_charges_forget(&hami_pools);
}

/*
 * A thread drops its reference after the driver's call, when another thread may have got the same handle. The late drop does not end
 * the new charge.
 */
static void a_late_drop_spares_who_got_the_handle(void)
{
    struct hami_charge charge = {.key = 5, .bytes = 100, .references = 2}, replaced;

    hami_charges_put(&hami_handles, charge, &replaced);
    hami_charges_put(&hami_handles, (struct hami_charge){.key = 5, .bytes = 200, .references = 1}, &replaced);
    CHECK_EQUAL(100, replaced.bytes);
    CHECK(!hami_charges_drop(&hami_handles, 5, &charge));
    CHECK(!hami_charges_drop(&hami_handles, 5, &charge));
    CHECK(hami_charges_drop(&hami_handles, 5, &charge) && charge.bytes == 200);
}

static void charges_follow_the_name_of_their_owner(void)
{
    struct hami_charge charge, replaced;

    hami_charges_put(&hami_pointers, (struct hami_charge){.key = 1, .owner = 10}, &replaced);
    hami_charges_put(&hami_pointers, (struct hami_charge){.key = 2, .owner = 20}, &replaced);
    hami_charges_change_owner(&hami_pointers, 10, 30);
    CHECK(hami_charges_find(&hami_pointers, 1, &charge) && charge.owner == 30);
    CHECK(hami_charges_find(&hami_pointers, 2, &charge) && charge.owner == 20);
    hami_charges_forget(&hami_pointers);
}

/* Make a million random steps, and compare with a plain array. */
static void random_use_loses_nothing(void)
{
    static uint64_t expected[1024];
    struct hami_charge charge, replaced;
    unsigned int seed = 20261121;

    for (int step = 0; step < 1000000; step++) {
        uint64_t key = 1 + (uint64_t)(rand_r(&seed) % 1023);

        if (rand_r(&seed) % 2) {
            uint64_t bytes = 1 + (uint64_t)rand_r(&seed);

            hami_charges_put(&hami_pointers, (struct hami_charge){.key = key, .bytes = bytes}, &replaced);
            if ((replaced.key ? replaced.bytes : 0) != expected[key])
                CHECK_EQUAL(expected[key], replaced.bytes);
            expected[key] = bytes;
        } else {
            if (hami_charges_take(&hami_pointers, key, &charge) != (expected[key] != 0))
                CHECK_EQUAL(expected[key], 0);
            expected[key] = 0;
        }
    }
    for (uint64_t key = 1; key < 1024; key++)
        CHECK_EQUAL(expected[key], hami_charges_find(&hami_pointers, key, &charge) ? charge.bytes : 0);
}

int main(void)
{
    what_is_put_is_found_until_taken();
    a_reused_key_gives_the_old_charge_back();
    the_last_reference_ends_a_charge();
    an_owner_takes_its_charges_along();
    each_charge_is_shown_once_and_can_be_resized();
    a_late_drop_spares_who_got_the_handle();
    charges_follow_the_name_of_their_owner();
    random_use_loses_nothing();
    return check_failures();
}

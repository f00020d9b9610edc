/*
 * A process finds itself among those whose contexts were made at the same time, by what it is charged for.
 */
#include "candidates.h"

#include "check.h"

#define MIB ((uint64_t)1 << 20)

enum { OWN = 100001, OTHER = 100002, THIRD = 100003 };

static const struct hami_nvml_processes none;

struct use {
    unsigned int pid;
    uint64_t mib;
};

#define LIST(...) list((const struct use[]){__VA_ARGS__, {0, 0}})

static const struct hami_nvml_processes *list(const struct use *uses)
{
    static struct hami_nvml_processes lists[2];
    static int next;
    struct hami_nvml_processes *made = &lists[next ^= 1];

    made->count = 0;
    for (; uses->pid; uses++)
        made->list[made->count++] = (nvmlProcessInfo_v2_t){.pid = uses->pid, .usedGpuMemory = uses->mib * MIB};
    return made;
}

static void begin(void)
{
    hami_candidates_forget();
    CHECK_EQUAL(0, hami_candidates_meet(0, &none, LIST({OWN, 128}, {OTHER, 128})));
    CHECK(hami_candidates_are_any());
}

static void one_that_appears_alone_is_known_at_once(void)
{
    hami_candidates_forget();
    CHECK_EQUAL(OWN, hami_candidates_meet(0, LIST({OTHER, 128}), LIST({OTHER, 128}, {OWN, 128})));
    CHECK(!hami_candidates_are_any());
}

static void one_with_less_than_the_charges_is_another(void)
{
    begin();
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 128}, {OTHER, 128}), 0));
    CHECK_EQUAL(OWN, hami_candidates_look(0, LIST({OWN, 428}, {OTHER, 128}), 300 * MIB));
}

static void one_that_grows_less_twice_is_another(void)
{
    begin();
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 128}, {OTHER, 4000}), 0));
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 428}, {OTHER, 4200}), 300 * MIB));
    CHECK_EQUAL(OWN, hami_candidates_look(0, LIST({OWN, 528}, {OTHER, 4200}), 400 * MIB));
}

static void one_that_changes_as_the_charges_do_is_this_one(void)
{
    begin();
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 128}, {OTHER, 128}), 0));
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 228}, {OTHER, 278}), 100 * MIB));
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 328}, {OTHER, 428}), 200 * MIB));
    CHECK_EQUAL(OWN, hami_candidates_look(0, LIST({OWN, 228}, {OTHER, 478}), 100 * MIB));
}

static void two_that_change_alike_stay_unknown(void)
{
    begin();
    for (uint64_t mib = 0; mib < 1000; mib += 100)
        CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 128 + mib}, {OTHER, 130 + mib}), mib * MIB));
    CHECK(hami_candidates_are_any());
}

/* Code that is loaded adds to what NVML counts, and the driver may give some back once. */
static void own_process_may_have_more_and_shrink_once(void)
{
    begin();
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 128}, {OTHER, 128}), 0));
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 300}, {OTHER, 328}), 100 * MIB));
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 300}, {OTHER, 428}), 200 * MIB));
    CHECK_EQUAL(OWN, hami_candidates_look(0, LIST({OWN, 500}, {OTHER, 60}), 400 * MIB));
}

static void memory_that_was_given_back_tells_nothing(void)
{
    begin();
    for (int round = 0; round < 4; round++) {
        CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 500}, {OTHER, 900}), 0));
        hami_candidates_restart();
        CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, 128}, {OTHER, 900}), 0));
        hami_candidates_restart();
    }
}

static void one_that_has_ended_is_another(void)
{
    begin();
    CHECK_EQUAL(OWN, hami_candidates_look(0, LIST({OWN, 128}), 0));
}

static void one_that_does_not_come_to_a_second_device_is_another(void)
{
    hami_candidates_forget();
    CHECK_EQUAL(0, hami_candidates_meet(0, &none, LIST({OWN, 128}, {OTHER, 128}, {THIRD, 128})));
    CHECK_EQUAL(0, hami_candidates_meet(1, LIST({THIRD, 128}), LIST({OWN, 128}, {OTHER, 128}, {THIRD, 128})));
    CHECK_EQUAL(OWN, hami_candidates_meet(2, LIST({OTHER, 128}), LIST({OTHER, 128}, {OWN, 128})));
}

static void nothing_is_learned_on_another_device_or_without_numbers(void)
{
    begin();
    CHECK_EQUAL(0, hami_candidates_look(1, LIST({OTHER, 128}), 300 * MIB));
    CHECK_EQUAL(0, hami_candidates_look(0, LIST({OWN, UINT64_MAX / MIB}, {OTHER, UINT64_MAX / MIB}), 300 * MIB));
    CHECK(hami_candidates_are_any());
}

static void looks_are_few(void)
{
    int looks = 0;

    begin();
    for (uint64_t charged = 0; charged < 1000; charged++)
        if (hami_candidates_are_due(0, charged * MIB)) {
            looks++;
            hami_candidates_look(0, LIST({OWN, 100 + charged}, {OTHER, 200 + charged}), charged * MIB);
        }
    CHECK(looks >= 16 && looks <= 20);
    CHECK(!hami_candidates_are_due(1, 5000 * MIB));
}

static void too_many_are_none(void)
{
    struct hami_nvml_processes many = {.count = 40};

    for (unsigned int index = 0; index < many.count; index++)
        many.list[index].pid = index + 1;
    hami_candidates_forget();
    CHECK_EQUAL(0, hami_candidates_meet(0, &none, &many));
    CHECK(!hami_candidates_are_any());
}

int main(void)
{
    one_that_appears_alone_is_known_at_once();
    one_with_less_than_the_charges_is_another();
    one_that_grows_less_twice_is_another();
    one_that_changes_as_the_charges_do_is_this_one();
    two_that_change_alike_stay_unknown();
    own_process_may_have_more_and_shrink_once();
    memory_that_was_given_back_tells_nothing();
    one_that_has_ended_is_another();
    one_that_does_not_come_to_a_second_device_is_another();
    nothing_is_learned_on_another_device_or_without_numbers();
    looks_are_few();
    too_many_are_none();
    return check_failures();
}

#include "hardware/mig_profiles.h"

#include <string.h>

/* Memory is that of nvidia-smi's table, in MiB. */
/* clang-format off */
#define PLACES_OF_1 0x7f /* {0,1,2,3,4,5,6}:1 */
#define PLACES_OF_2 0x15 /* {0,2,4}:2 */

static const struct mig_model models[] = {
    {"A100", "40GB", true, {
        /* name        kind  id  slices instances SMs  CE DEC ENC JPEG OFA memory size starts */
        {"1g.5gb",      0x0, 19, 1, 7, 14, 1, 0, 0, 0, 0, 4864, 1, PLACES_OF_1},
        {"2g.10gb",     0x1, 14, 2, 3, 28, 2, 1, 0, 0, 0, 9984, 2, PLACES_OF_2},
        {"3g.20gb",     0x2,  9, 3, 2, 42, 3, 2, 0, 0, 0, 20096, 4, 0x11},
        {"4g.20gb",     0x3,  5, 4, 1, 56, 4, 2, 0, 0, 0, 20096, 4, 0x01},
        {"7g.40gb",     0x4,  0, 7, 1, 98, 7, 5, 0, 1, 1, 40448, 8, 0x01},
        {"1g.5gb+me",   0x7, 20, 1, 1, 14, 1, 1, 0, 1, 1, 4864, 1, PLACES_OF_1},
        {"1g.10gb",     0x9, 15, 1, 4, 14, 1, 1, 0, 0, 0, 9984, 2, 0x55},
    }},
    {"A100", "80GB", true, {
        {"1g.10gb",     0x0, 19, 1, 7, 14, 1, 0, 0, 0, 0, 9728, 1, PLACES_OF_1},
        {"2g.20gb",     0x1, 14, 2, 3, 28, 2, 1, 0, 0, 0, 19968, 2, PLACES_OF_2},
        {"3g.40gb",     0x2,  9, 3, 2, 42, 3, 2, 0, 0, 0, 40192, 4, 0x11},
        {"4g.40gb",     0x3,  5, 4, 1, 56, 4, 2, 0, 0, 0, 40192, 4, 0x01},
        {"7g.80gb",     0x4,  0, 7, 1, 98, 7, 5, 0, 1, 1, 80896, 8, 0x01},
        {"1g.10gb+me",  0x7, 20, 1, 1, 14, 1, 1, 0, 1, 1, 9728, 1, PLACES_OF_1},
        {"1g.20gb",     0x9, 15, 1, 4, 14, 1, 1, 0, 0, 0, 19968, 2, 0x55},
    }},
    {"H100", "80GB", false, {
        {"1g.10gb",     0x0, 19, 1, 7, 16, 1, 1, 0, 1, 0, 9984, 1, PLACES_OF_1},
        {"2g.20gb",     0x1, 14, 2, 3, 32, 2, 2, 0, 2, 0, 20096, 2, PLACES_OF_2},
        {"3g.40gb",     0x2,  9, 3, 2, 60, 3, 3, 0, 3, 0, 40448, 4, 0x11},
        {"4g.40gb",     0x3,  5, 4, 1, 64, 4, 4, 0, 4, 0, 40448, 4, 0x01},
        {"7g.80gb",     0x4,  0, 7, 1, 132, 8, 7, 0, 7, 1, 81152, 8, 0x01},
        {"1g.10gb+me",  0x7, 20, 1, 1, 16, 1, 1, 0, 1, 1, 9984, 1, PLACES_OF_1},
        {"1g.20gb",     0x9, 15, 1, 4, 26, 1, 1, 0, 1, 0, 20096, 2, 0x55},
    }},
    {"A30", NULL, true, {
        {"1g.6gb",      0x0, 14, 1, 4, 14, 1, 0, 0, 0, 0, 5952, 1, 0x0f},
        {"2g.12gb",     0x1,  5, 2, 2, 28, 2, 2, 0, 0, 0, 11968, 2, 0x05},
        {"4g.24gb",     0x3,  0, 4, 1, 56, 4, 4, 0, 1, 1, 24000, 4, 0x01},
        {"1g.6gb+me",   0x7, 21, 1, 1, 14, 1, 1, 0, 1, 1, 5952, 1, 0x0f},
        {"2g.12gb+me",  0x8,  6, 2, 1, 28, 2, 2, 0, 1, 1, 11968, 2, 0x05},
    }},
};
/* clang-format on */

static const struct mig_compute_profile compute_profiles[] = {
    {"1c", 0, 1}, {"2c", 1, 2}, {"3c", 2, 3}, {"4c", 3, 4}, {"7c", 4, 7},
};

const struct mig_model *mig_model(const char *device_name)
{
    for (size_t index = 0; index < sizeof(models) / sizeof(models[0]); index++)
        if (strstr(device_name, models[index].name) && (!models[index].other || strstr(device_name, models[index].other)))
            return &models[index];
    return NULL;
}

const struct mig_profile *mig_profile_of_kind(const struct mig_model *model, unsigned int kind)
{
    for (const struct mig_profile *profile = model->profiles; profile < model->profiles + MIG_PROFILES_MAX; profile++)
        if (profile->name && profile->kind == kind)
            return profile;
    return NULL;
}

const struct mig_profile *mig_profile_of_id(const struct mig_model *model, unsigned int id)
{
    for (const struct mig_profile *profile = model->profiles; profile < model->profiles + MIG_PROFILES_MAX; profile++)
        if (profile->name && profile->id == id)
            return profile;
    return NULL;
}

unsigned int mig_spans(const struct mig_profile *profile, struct mig_span *spans)
{
    unsigned int count = 0;

    for (unsigned int start = 0; start < MIG_PLACEMENTS_MAX; start++)
        if (profile->starts >> start & 1)
            spans[count++] = (struct mig_span){start, profile->size};
    return count;
}

const struct mig_compute_profile *mig_compute_profile(const struct mig_profile *within, unsigned int kind)
{
    if (kind >= sizeof(compute_profiles) / sizeof(compute_profiles[0]) || compute_profiles[kind].slices > within->slices)
        return NULL;
    /* Four slices are two pairs. */
    return within->slices == 4 && compute_profiles[kind].slices == 3 ? NULL : &compute_profiles[kind];
}

unsigned int mig_compute_spans(const struct mig_profile *within, const struct mig_compute_profile *profile, struct mig_span *spans)
{
    unsigned int step = profile->slices == 3 ? 4 : profile->slices, count = 0;

    for (unsigned int start = 0; start + profile->slices <= within->slices; start += step)
        spans[count++] = (struct mig_span){start, profile->slices};
    return count;
}

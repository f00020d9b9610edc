/*
 * The grammar of the options: what is accepted, and what a bad value becomes.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "options.h"

static const struct hami_limits_file no_file;

static uint64_t memory_limit(const char *text)
{
    struct hami_options options;

    setenv("CUDA_DEVICE_MEMORY_LIMIT", text, 1);
    hami_options_parse(&options, &no_file);
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    return options.memory_limit_bytes[0];
}

static uint64_t sm_limit(const char *text)
{
    struct hami_options options;

    setenv("CUDA_DEVICE_SM_LIMIT", text, 1);
    hami_options_parse(&options, &no_file);
    unsetenv("CUDA_DEVICE_SM_LIMIT");
    return options.sm_limit_percent[0];
}

static void units_are_powers_of_1024(void)
{
    CHECK_EQUAL(3000ll << 20, memory_limit("3000m"));
    CHECK_EQUAL(3000ll << 20, memory_limit("3000M"));
    CHECK_EQUAL(2ll << 30, memory_limit("2g"));
    CHECK_EQUAL(7 << 10, memory_limit("7k"));
    CHECK_EQUAL(12345, memory_limit("12345"));
    CHECK_EQUAL(16 << 20, memory_limit("0x10m"));
}

static void zero_and_nothing_are_no_limit(void)
{
    CHECK_EQUAL(0, memory_limit("0"));
    CHECK_EQUAL(0, memory_limit("0m"));
    CHECK_EQUAL(0, memory_limit(""));
    CHECK_EQUAL(100, sm_limit("0"));
    CHECK_EQUAL(100, sm_limit("100"));
    CHECK_EQUAL(100, sm_limit("250"));
    CHECK_EQUAL(30, sm_limit("30"));
}

static void a_bad_limit_refuses_everything(void)
{
    static const char *const bad[] = {"abc", "3000mb", "1xxg", "m", "-1", " 3", "1.5g", "99999999999999999999", "99999999999999g"};

    for (size_t index = 0; index < sizeof(bad) / sizeof(bad[0]); index++)
        CHECK_EQUAL(HAMI_REFUSE_ALL_BYTES, memory_limit(bad[index]));
    CHECK_EQUAL(HAMI_REFUSE_ALL_PERCENT, sm_limit("30m"));
    CHECK_EQUAL(HAMI_REFUSE_ALL_PERCENT, sm_limit("half"));
}

static void an_indexed_variable_is_for_one_device(void)
{
    struct hami_options options;

    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1g", 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT_1", "2g", 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT_15", "oops", 1);
    hami_options_parse(&options, &no_file);
    CHECK_EQUAL(1ll << 30, options.memory_limit_bytes[0]);
    CHECK_EQUAL(2ll << 30, options.memory_limit_bytes[1]);
    CHECK_EQUAL(HAMI_REFUSE_ALL_BYTES, options.memory_limit_bytes[15]);
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT_1");
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT_15");
}

static void the_rest_falls_back_to_its_default(void)
{
    struct hami_options options;

    setenv("CUDA_TASK_PRIORITY", "high", 1);
    setenv("CUDA_DISABLE_CONTROL", "maybe", 1);
    hami_options_parse(&options, &no_file);
    CHECK_EQUAL(1, options.priority);
    CHECK(!options.is_disabled);
    setenv("CUDA_TASK_PRIORITY", "0", 1);
    setenv("CUDA_DISABLE_CONTROL", "True", 1);
    hami_options_parse(&options, &no_file);
    CHECK_EQUAL(0, options.priority);
    CHECK(options.is_disabled);
    CHECK(strcmp(options.region_path, "/tmp/cudevshr.cache") == 0);
}

static void policies_are_three(void)
{
    static const struct {
        const char *text;
        hami_option_policy policy;
    } cases[] = {{"force", HAMI_POLICY_FORCE},     {"FORCE", HAMI_POLICY_FORCE},    {"Disable", HAMI_POLICY_DISABLE},
                 {"default", HAMI_POLICY_DEFAULT}, {"always", HAMI_POLICY_DEFAULT}, {"", HAMI_POLICY_DEFAULT}};
    struct hami_options options;

    for (size_t index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        setenv("GPU_CORE_UTILIZATION_POLICY", cases[index].text, 1);
        hami_options_parse(&options, &no_file);
        CHECK_EQUAL(cases[index].policy, options.utilization_policy);
    }
    unsetenv("GPU_CORE_UTILIZATION_POLICY");
}

static void negative_numbers_are_refused(void)
{
    struct hami_options options;

    setenv("RECORD_KERNEL_INTERVAL", "-5", 1);
    hami_options_parse(&options, &no_file);
    unsetenv("RECORD_KERNEL_INTERVAL");
    CHECK_EQUAL(1, options.kernel_interval_seconds);
}

/* A limits file whose text is `line`, which ends with an empty line. */
static struct hami_limits_file with_line(const char *line)
{
    struct hami_limits_file file = {.state = HAMI_LIMITS_READ};

    strcpy(file.text, line);
    return file;
}

static void the_stricter_policy_holds_beside_a_limits_file(void)
{
    static const struct {
        const char *in_file, *in_environment;
        hami_option_policy policy;
    } cases[] = {{"disable", "", HAMI_POLICY_DISABLE},    {"disable", "default", HAMI_POLICY_DEFAULT},
                 {"disable", "force", HAMI_POLICY_FORCE}, {"", "disable", HAMI_POLICY_DEFAULT},
                 {"", "force", HAMI_POLICY_FORCE},        {"default", "disable", HAMI_POLICY_DEFAULT},
                 {"force", "", HAMI_POLICY_FORCE},        {"force", "default", HAMI_POLICY_FORCE},
                 {"force", "disable", HAMI_POLICY_FORCE}};
    struct hami_options options;

    for (size_t index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        char line[64] = "GPU_CORE_UTILIZATION_POLICY=";
        struct hami_limits_file file;

        strcat(line, cases[index].in_file);
        file = with_line(line);
        setenv("GPU_CORE_UTILIZATION_POLICY", cases[index].in_environment, 1);
        hami_options_parse(&options, &file);
        CHECK_EQUAL(cases[index].policy, options.utilization_policy);
    }
    unsetenv("GPU_CORE_UTILIZATION_POLICY");
}

static void limits_of_the_plugin_lower_nothing(void)
{
    struct hami_limits_file file = with_line("CUDA_DEVICE_MEMORY_LIMIT_0=1g");
    struct hami_options options;

    setenv("CUDA_DEVICE_MEMORY_LIMIT_0", "1g", 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT_1", "1g", 1);
    hami_options_parse(&options, &file);
    CHECK_EQUAL(0, options.memory_limit_bytes[0]);
    CHECK_EQUAL(1ll << 30, options.memory_limit_bytes[1]);
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT_0");
    unsetenv("CUDA_DEVICE_MEMORY_LIMIT_1");
}

static void the_file_has_the_defaults_of_what_it_does_not_hold(void)
{
    struct hami_limits_file file = with_line("CUDA_TASK_PRIORITY=0");
    struct hami_options options;

    unsetenv("CUDA_TASK_PRIORITY");
    hami_options_parse(&options, &file);
    CHECK_EQUAL(0, options.priority);
    setenv("CUDA_TASK_PRIORITY", "2", 1);
    hami_options_parse(&options, &file);
    CHECK_EQUAL(2, options.priority);
    unsetenv("CUDA_TASK_PRIORITY");
}

int main(void)
{
    units_are_powers_of_1024();
    zero_and_nothing_are_no_limit();
    a_bad_limit_refuses_everything();
    an_indexed_variable_is_for_one_device();
    the_rest_falls_back_to_its_default();
    policies_are_three();
    negative_numbers_are_refused();
    the_stricter_policy_holds_beside_a_limits_file();
    limits_of_the_plugin_lower_nothing();
    the_file_has_the_defaults_of_what_it_does_not_hold();
    return check_failures();
}

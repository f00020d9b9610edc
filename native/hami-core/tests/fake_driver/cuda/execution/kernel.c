/*
 * Modules and functions of the fake driver, and the duration of kernels.
 *
 * A kernel's name is what it does, in any module and with any grid:
 *   busy_<us>                       takes that long; busy_0 costs nothing and never reaches the device
 *   lognormal_<median us>_<sigma>   log-normal with that median; sigma is that of the logarithm, in percent
 *   phase_<us>_<n>_<us>             the first duration for n launches, then the second
 * `@<percent>` after a name is the part of the device that it takes; without it, all of it. Other names are not found, unless
 * FAKE_DRIVER_OTHER_KERNELS_US=<us> gives them a duration: images are not read. FAKE_DRIVER_SEED (1) chooses the random durations, which are the same for the same launches of the same name. FAKE_DRIVER_CLOCK=<percent>[:<every ms>:<for ms>] slows the
 * device's clock down, always or at the end of every period.
 *
 * A module takes its memory when it is loaded, or with CUDA_MODULE_LOADING=LAZY at the first launch of one of its functions.
 * Source: CUDA Programming Guide, Lazy Loading.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device/oracle.h"
#include "cuda/execution/execution.h"
#include "driver/variables.h"

#define US ((uint64_t)1000)

struct CUmod_st {
    CUcontext context;
    bool is_loaded; /* atomic: its memory is taken */
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    enum { BUSY, LOGNORMAL, PHASE } kind;
    uint64_t duration_ns, second_ns;
    double sigma;
    uint64_t first_launches;
    unsigned int part;
    uint64_t seed, launches;
    CUmodule module;
    struct CUfunc_st *next;
};

/* Durations */

/* Return a number that is as good as random for every input. Source: SplitMix64, Steele, Lea and Flood, OOPSLA 2014. */
static uint64_t mixed(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/* In (0, 1]. */
static double uniform(uint64_t value)
{
    return (double)((mixed(value) >> 11) + 1) / (double)((uint64_t)1 << 53);
}

static double normal(uint64_t value)
{
    return sqrt(-2 * log(uniform(value))) * cos(2 * M_PI * uniform(~value));
}

static uint64_t unslowed(CUfunction function)
{
    uint64_t launch;

    if (function->kind == BUSY)
        return function->duration_ns;
    launch = __atomic_fetch_add(&function->launches, 1, __ATOMIC_RELAXED);
    if (function->kind == PHASE)
        return launch < function->first_launches ? function->duration_ns : function->second_ns;
    return (uint64_t)((double)function->duration_ns * exp(function->sigma * normal(function->seed + 2 * launch)));
}

static struct {
    double percent;
    unsigned int every_ms, slow_ms;
} clock_setting;
static pthread_once_t clock_read = PTHREAD_ONCE_INIT;

static void read_clock_setting(void)
{
    const char *setting = variable("FAKE_DRIVER_CLOCK");

    if (!setting || sscanf(setting, "%lf:%u:%u", &clock_setting.percent, &clock_setting.every_ms, &clock_setting.slow_ms) < 1 ||
        clock_setting.percent <= 0)
        clock_setting.percent = 100;
}

static double clock_share(void)
{
    unsigned int every_ms, slow_ms;

    pthread_once(&clock_read, read_clock_setting);
    every_ms = clock_setting.every_ms;
    slow_ms = clock_setting.slow_ms;
    if (clock_setting.percent == 100 || (every_ms && hw_now_ns() / 1000000u % every_ms < every_ms - slow_ms))
        return 1;
    return clock_setting.percent / 100;
}

uint64_t fake_kernel_draw(CUfunction function)
{
    uint64_t duration_ns = unslowed(function);
    double share = clock_share();

    return share == 1 ? duration_ns : (uint64_t)((double)duration_ns / share);
}

unsigned int fake_kernel_part(CUfunction function)
{
    return function->part;
}

bool fake_kernel_is_steady(CUfunction function)
{
    return function->kind == BUSY && clock_share() == 1;
}

ORACLE void fake_set_duration(CUfunction function, uint64_t duration_ns)
{
    function->kind = BUSY;
    function->duration_ns = duration_ns;
}

/* Functions */

static uint64_t seed_of(const char *name)
{
    uint64_t seed = fake_setting("FAKE_DRIVER_SEED", 1);

    while (*name)
        seed = mixed(seed ^ (unsigned char)*name++);
    return seed;
}

static bool parse(const char *name, struct CUfunc_st *function)
{
    unsigned long first, launches, second;
    const char *part = strchr(name, '@');
    double sigma;

    *function = (struct CUfunc_st){.part = part ? (unsigned int)strtoul(part + 1, NULL, 10) : PROFILE_WHOLE, .seed = seed_of(name)};
    if (sscanf(name, "busy_%lu", &first) == 1) {
        function->kind = BUSY;
    } else if (sscanf(name, "lognormal_%lu_%lf", &first, &sigma) == 2) {
        function->kind = LOGNORMAL;
        function->sigma = sigma / 100;
    } else if (sscanf(name, "phase_%lu_%lu_%lu", &first, &launches, &second) == 3) {
        function->kind = PHASE;
        function->first_launches = launches;
        function->second_ns = second * US;
    } else {
        first = fake_setting("FAKE_DRIVER_OTHER_KERNELS_US", UINT64_MAX);
        if (first == UINT64_MAX)
            return false;
        function->kind = BUSY;
        function->part = PROFILE_WHOLE;
    }
    function->duration_ns = first * US;
    return function->part >= 1 && function->part <= PROFILE_WHOLE;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct CUfunc_st parsed;

    if (!function || !module || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!parse(name, &parsed))
        return CUDA_ERROR_NOT_FOUND;
    *function = malloc(sizeof(parsed));
    if (!*function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    parsed.module = module;
    parsed.next = module->functions;
    **function = parsed;
    module->functions = *function;
    return CUDA_SUCCESS;
}

/* Modules */

static bool is_lazy(void)
{
    const char *loading = variable("CUDA_MODULE_LOADING");

    return loading && strcmp(loading, "LAZY") == 0;
}

/* Take the memory of a module, once. */
static CUresult load(CUmodule module)
{
    CUresult result;

    if (__atomic_exchange_n(&module->is_loaded, true, __ATOMIC_ACQ_REL))
        return CUDA_SUCCESS;
    result = fake_module_take(module->context);
    if (result != CUDA_SUCCESS)
        __atomic_store_n(&module->is_loaded, false, __ATOMIC_RELEASE);
    return result;
}

CUresult fake_kernel_load(CUfunction function)
{
    return load(function->module);
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    *module = calloc(1, sizeof(**module));
    if (!*module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*module)->context = context;
    result = is_lazy() ? CUDA_SUCCESS : load(*module);
    if (result != CUDA_SUCCESS)
        free(*module);
    return result;
}

EXTRA(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(module, image);
}

API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *binary)
{
    return cuModuleLoadData(module, binary);
}

/* Images are not read, so a file need not exist. */
API CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    return cuModuleLoadData(module, path);
}

API CUresult cuModuleUnload(CUmodule module)
{
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    while (module->functions) {
        struct CUfunc_st *next = module->functions->next;

        free(module->functions);
        module->functions = next;
    }
    if (module->is_loaded)
        fake_module_give(module->context);
    free(module);
    return CUDA_SUCCESS;
}

/*
 * A library whose end takes half a second. Preloaded after libvgpu.so, it ends after it.
 */
#include <time.h>

__attribute__((destructor)) static void end(void)
{
    nanosleep(&(struct timespec){0, 500000000}, NULL);
}

/*
 * The state of a container on the hook's stdin: any content has a pid from 1 on, or a problem.
 */
#include "fuzz.h"

#include "state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pid = -1;
    const char *problem = hami_state_pid((const char *)data, size, &pid);

    PROMISE(problem ? problem[0] != '\0' : pid > 0);
    return 0;
}

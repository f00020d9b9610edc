#include "uuid.h"

#include <string.h>

static const char *digits(const char *uuid)
{
    return uuid[0] && uuid[1] && uuid[2] && uuid[3] == '-' ? uuid + 4 : uuid;
}

bool hami_is_same_uuid(const char *first, const char *second)
{
    return strcmp(digits(first), digits(second)) == 0;
}

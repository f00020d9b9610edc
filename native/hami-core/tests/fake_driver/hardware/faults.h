/*
 * How a card, or NVML as a whole, fails: the conditions `hang`, `error` and `lost`.
 *
 * Owns their meaning. Knows no library's error numbers: a test gives the number, and FAULT_LOST has a name.
 */
#ifndef FAKE_FAULTS_H
#define FAKE_FAULTS_H

#include <stdbool.h>

enum fault_kind { FAULT_NONE, FAULT_ERROR, FAULT_LOST };

struct fault {
    enum fault_kind kind;
    int error;
};

/* What takes the place of a call to NVML. Waits while it hangs. */
struct fault fault_of_nvml(const char *call);

/* What takes the place of a call for a device. Waits while it hangs, and loses a device that is to be lost at this call. */
struct fault fault_of_device(int device, const char *call);

/* Whether a device has fallen off the bus. An instance is lost with its GPU, or when it was removed by force. */
bool fault_is_lost(int device);

#endif

// Decides what a search finds. Knows nothing of how it is shown.
//
// A search is words, all of which must match. A plain word is part of the name of a node, a device's model or id, a namespace or
// a Pod. `ns:`, `pod:`, `node:` and `device:` look at that alone; `is:` takes one of the words below.

const STATES = {
    free: (device) => device.shares.length === 0,
    idle: (device) => device.shares.some((share) => share.usedMemoryMib === 0),
    throttled: (device) => device.shares.some((share) => share.isThrottled),
    unhealthy: (device) => !device.isHealthy,
    full: (device) => device.grantedMemoryMib >= device.memoryMib,
};
const POD_STATES = {
    waiting: (pod) => pod.isWaiting,
    running: (pod) => !pod.isWaiting,
    idle: (pod) => !pod.isWaiting && pod.usedMib === 0,
    throttled: (pod) => pod.isThrottled,
};

/** Words that `is:` takes, for the help. */
export const STATE_WORDS = [...new Set([...Object.keys(STATES), ...Object.keys(POD_STATES)])];

/** Return the words of a search, each with what it looks at: "", "ns", "pod", "node", "device" or "is". */
export function words(search) {
    return search
        .toLowerCase()
        .split(/\s+/)
        .filter(Boolean)
        .map((word) => {
            const [, field = "", text] = /^(?:(ns|pod|node|device|is):)?(.*)$/.exec(word);
            return { field, text };
        });
}

/** Return whether a device of a node matches all *wanted* words. */
export function matchesDevice(device, node, wanted) {
    return wanted.every(({ field, text }) => {
        if (field === "is") return STATES[text]?.(device) ?? false;
        const shares = device.shares.some((share) => matchesOwner(share.namespace, share.pod, field, text));
        const here = (field === "" || field === "node") && has(node.name, text);
        const model = (field === "" || field === "device") && (has(device.model, text) || has(device.id, text));
        return shares || here || model;
    });
}

/** Return whether a share matches the words that are about Pods. False only where there are such words. */
export function matchesShare(share, wanted) {
    return wanted.every(({ field, text }) => {
        if (field === "ns" || field === "pod") return matchesOwner(share.namespace, share.pod, field, text);
        return true;
    });
}

/** Return whether a Pod matches all *wanted* words. */
export function matchesPod(pod, wanted) {
    return wanted.every(({ field, text }) => {
        if (field === "is") return POD_STATES[text]?.(pod) ?? false;
        if (field === "node") return has(pod.node, text);
        if (field === "device") return pod.devices.some(({ id, model }) => has(id, text) || has(model, text));
        return matchesOwner(pod.namespace, pod.pod, field, text) || (field === "" && has(pod.node, text));
    });
}

function matchesOwner(namespace, pod, field, text) {
    if (field === "ns")
        return namespace.toLowerCase() === text || (text.endsWith("*") && has(namespace, text.slice(0, -1)));
    if (field === "pod") return has(pod, text);
    return field === "" && has(`${namespace}/${pod}`, text);
}

function has(whole, part) {
    return (whole ?? "").toLowerCase().includes(part);
}

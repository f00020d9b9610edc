// Decides what a search finds. Knows nothing of how it is shown.
//
// A search is words, all of which must match. A plain word is part of the name of a node, a device's model or id, a namespace,
// a Pod or, among Pods, its owner. `ns:`, `pod:`, `node:` and `device:` look at that alone; `is:` takes one of the words below. A device matches by what it
// is itself, or with one of its shares: words about a share are about the same one.

const DEVICE_STATES = {
    free: (device) => device.shares.length === 0,
    unhealthy: (device) => !device.isHealthy,
    full: (device) => device.grantedMemoryMib >= device.memoryMib,
};
const SHARE_STATES = {
    idle: (share) => share.usedMemoryMib === 0,
    throttled: (share) => share.isThrottled,
};
const POD_STATES = {
    waiting: (pod) => pod.isWaiting,
    running: (pod) => !pod.isWaiting,
    idle: (pod) => !pod.isWaiting && pod.usedMib === 0,
    throttled: (pod) => pod.isThrottled,
};
const OF_DEVICES = [...Object.keys(DEVICE_STATES), ...Object.keys(SHARE_STATES)];
const OF_PODS = Object.keys(POD_STATES);

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

/** Return what is wrong with *wanted* among devices, or among Pods, in words; empty if nothing is. */
export function unknownWord(wanted, { arePods }) {
    const known = arePods ? OF_PODS : OF_DEVICES;
    const odd = wanted.find(({ field, text }) => field === "is" && !known.includes(text));
    if (odd) {
        const isElsewhere = (arePods ? OF_DEVICES : OF_PODS).includes(odd.text);
        const whose = isElsewhere ? `is about ${arePods ? "devices" : "Pods"}` : "is no state";
        return `is:${odd.text} ${whose}; here is: takes ${known.join(", ")}.`;
    }
    const field = wanted.map(({ text, field }) => (field ? null : /^([a-z]+):/.exec(text)?.[1])).find(Boolean);
    return field ? `${field}: is no field; the fields are ns:, pod:, node:, device: and is:.` : "";
}

/** Return whether a device of a node matches all *wanted* words. */
export function matchesDevice(device, node, wanted) {
    return [null, ...device.shares].some((share) =>
        wanted.every((word) => isDevice(device, node, word) || (share && isShare(share, word))),
    );
}

/** Return whether a share matches those *wanted* words that are about shares. False only where there are such words. */
export function matchesShare(share, wanted) {
    return wanted.every((word) => !isAboutShares(word) || isShare(share, word));
}

/** Return whether a Pod matches all *wanted* words. */
export function matchesPod(pod, wanted) {
    return wanted.every(({ field, text }) => {
        if (field === "is") return POD_STATES[text]?.(pod) ?? false;
        if (field === "node") return has(pod.node, text);
        if (field === "device") return pod.devices.some(({ id, model }) => has(id, text) || has(model, text));
        return matchesOwner(pod.namespace, pod.pod, field, text) || (field === "" && (has(pod.node, text) || has(pod.owner, text)));
    });
}

function isDevice(device, node, { field, text }) {
    if (field === "is") return DEVICE_STATES[text]?.(device) ?? false;
    const isHere = (field === "" || field === "node") && has(node.name, text);
    return isHere || ((field === "" || field === "device") && (has(device.model, text) || has(device.id, text)));
}

function isShare(share, { field, text }) {
    if (field === "is") return SHARE_STATES[text]?.(share) ?? false;
    return matchesOwner(share.namespace, share.pod, field, text);
}

function isAboutShares({ field, text }) {
    return field === "ns" || field === "pod" || (field === "is" && text in SHARE_STATES);
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

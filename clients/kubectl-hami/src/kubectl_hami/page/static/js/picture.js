// Turns the server's picture of the cluster into what the views show: owners and their colours, sums, and an index.
// Changes nothing after it is made. docs/page.md describes the JSON.

import { span } from "./units.js";

const COLOURS = 8;

/**
 * Return the picture with, in each node, device and Pod, what is computed from it.
 *
 * previous   the picture before, or null; a share is throttled if its launches waited between the two
 *
 * nodes      by name; each with its devices, each device with the shares that take a part of it now
 * pods       those that hold shares and those that wait, by namespace and name; each with the place of its devices
 * waiting    the Pods that wait, longest first, each with how long in words, so that it changes only when the words do
 * owners     what colours tell apart: the namespaces, or the Pods where one namespace has all; by name
 */
export function picture(json, previous = null) {
    const at = Date.parse(json.takenAt);
    const waits = previous?.waits ?? new Map();
    const nodes = json.nodes.map((node) => ({
        ...node,
        devices: node.devices.map((device) => withShares(device, waits)),
    }));
    const pods = new Map();
    const shares = nodes.flatMap((node) =>
        node.devices.flatMap((device) => device.shares.map((share) => ({ node, device, share }))),
    );
    shares.forEach((each) => hold(pods, each));
    const waiting = json.waiting.map((pod) => ({
        ...NOTHING,
        ...pod,
        isWaiting: true,
        age: span((at - Date.parse(pod.since)) / 1000),
    }));
    waiting.forEach((pod) => pods.set(podKey(pod), pod));
    for (const { phase, since, owner, cause, ...name } of json.pods) {
        const age = since ? span((at - Date.parse(since)) / 1000) : "–";
        if (pods.has(podKey(name))) Object.assign(pods.get(podKey(name)), { phase, since, age, owner, cause });
    }
    return {
        ...json,
        at,
        nodes,
        waiting,
        pods,
        owners: ownersOf([...pods.values()].filter((pod) => !pod.isWaiting)),
        total: totals(nodes),
        waits: new Map(shares.map(({ device, share }) => [shareKey(device, share), share.throttledSeconds])),
    };
}

/** Return the name of a Pod in `pods`. */
export function podKey({ namespace, pod }) {
    return `${namespace}/${pod}`;
}

/** Return the number of the colour of a Pod's owner. */
export function colour(owners, pod) {
    return owners.of(pod)?.colour ?? 0;
}

/**
 * Return the sums over the devices of *nodes*. Unknown use of memory counts as none.
 *
 * busyPercent   of the devices whose use is known, their mean; null if none is
 */
export function totals(nodes) {
    const devices = nodes.flatMap((node) => node.devices);
    const sum = (read) => devices.reduce((all, one) => all + (read(one) ?? 0), 0);
    const busy = devices.map((one) => one.usedCorePercent).filter((percent) => percent !== null);
    return {
        nodes: nodes.length,
        devices: devices.length,
        memoryMib: sum((one) => one.memoryMib),
        grantedMib: sum((one) => one.grantedMemoryMib),
        usedMib: sum((one) => one.sharesUsedMib),
        corePercent: sum((one) => one.corePercent),
        grantedCorePercent: sum((one) => one.grantedCorePercent),
        busyPercent: busy.length ? sumKnown(busy) / busy.length : null,
        unhealthy: devices.filter((one) => !one.isHealthy).length,
        free: devices.filter((one) => one.isHealthy && one.grantedReplicas === 0).length,
    };
}

const NOTHING = {
    phase: "",
    since: null,
    age: "–",
    owner: "",
    cause: "",
    node: null,
    devices: [],
    shares: [],
    grantedMib: 0,
    usedMib: null,
    corePercent: 0,
    busyPercent: null,
    isThrottled: false,
};

/** An init container ran before the others of its Pod, so where they have a share of the same device, its own is not drawn. */
function withShares(device, waits) {
    const held = device.shares.filter((share) => share.holds);
    const lasting = new Set(held.filter((share) => share.kind !== "init").map(podKey));
    const shares = held
        .filter((share) => share.kind !== "init" || !lasting.has(podKey(share)))
        .map((share) => ({
            ...share,
            isThrottled: share.throttledSeconds > (waits.get(shareKey(device, share)) ?? Infinity),
        }))
        .sort(by(({ namespace, pod, container }) => `${namespace}/${pod}/${container}`));
    return { ...device, shares, sharesUsedMib: sumKnown(shares.map((share) => share.usedMemoryMib)) };
}

function shareKey(device, { namespace, pod, container }) {
    return `${device.id} ${namespace}/${pod}/${container}`;
}

function hold(pods, { node, device, share }) {
    const key = podKey(share);
    const place = { id: device.id, node: node.name, index: device.index, model: device.model };
    const pod = pods.get(key) ?? {
        ...NOTHING,
        namespace: share.namespace,
        pod: share.pod,
        node: node.name,
        devices: [],
        shares: [],
    };
    pods.set(key, pod);
    if (!pod.devices.some(({ id }) => id === device.id)) pod.devices.push(place);
    pod.shares.push({ ...share, device: place });
    pod.grantedMib += share.memoryMib;
    pod.corePercent += share.corePercent;
    pod.usedMib = sumKnown([pod.usedMib, share.usedMemoryMib]);
    pod.busyPercent = sumKnown([pod.busyPercent, share.usedCorePercent]);
    pod.isThrottled ||= share.isThrottled;
}

function ownersOf(pods) {
    const isOne = new Set(pods.map((pod) => pod.namespace)).size <= 1;
    const name = isOne ? (pod) => pod.pod : (pod) => pod.namespace;
    const found = new Map();
    for (const pod of [...pods].sort(by(name))) {
        const owner = found.get(name(pod)) ?? {
            name: name(pod),
            colour: found.size % COLOURS,
            grantedMib: 0,
            usedMib: 0,
            pods: 0,
        };
        found.set(owner.name, owner);
        owner.grantedMib += pod.grantedMib;
        owner.usedMib += pod.usedMib ?? 0;
        owner.pods += 1;
    }
    const [kind, field] = isOne ? ["Pod", "pod"] : ["namespace", "ns"];
    return { kind, field, all: [...found.values()], of: (pod) => found.get(name(pod)) };
}

/** Return the sum of the numbers among *values*, null if there are none. */
function sumKnown(values) {
    const known = values.filter((value) => value !== null);
    return known.length ? known.reduce((all, value) => all + value, 0) : null;
}

function by(read) {
    const names = new Intl.Collator("en", { numeric: true });
    return (one, other) => names.compare(read(one), read(other));
}

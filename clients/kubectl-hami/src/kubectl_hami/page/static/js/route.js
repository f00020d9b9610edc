// Keeps the state of the page in the address, so that each state has a link and Back works. Reads and writes nothing else.
//
//   #/devices?q=team-a&size=small&sort=free    all devices
//   #/node/NAME?device=UUID                    one node, one of its devices marked
//   #/pods?q=is:waiting&sort=-used           all Pods
//   #/pod/NAMESPACE/NAME                     one Pod
//   #/doctor  #/grants  #/simulate           the answers of the commands
//   #/usage/pods?since=7d                    device-hours of namespaces, pods or models

const PARTS = {
    devices: [],
    pods: [],
    node: ["node"],
    pod: ["namespace", "name"],
    doctor: [],
    grants: [],
    usage: ["of"],
    simulate: [],
};

/** Return the state that a `location.hash` names: `view`, the view's own parts, and `options`. Unknown ones are the devices. */
export function parse(hash) {
    const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
    const [view, ...given] = path.split("/").map(decoded);
    const names = PARTS[view];
    const options = Object.fromEntries(new URLSearchParams(query));
    if (!names || given.length !== names.length) return { view: "devices", options };
    return { view, options, ...Object.fromEntries(names.map((name, place) => [name, given[place]])) };
}

/** Return the `location.hash` of a state. Empty options are left out. */
export function format({ view, options = {}, ...parts }) {
    const path = [view, ...PARTS[view].map((name) => encodeURIComponent(parts[name]))].join("/");
    const kept = Object.entries(options).filter(([, value]) => value);
    return `#/${path}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
}

/** Return the link of a Pod's page. */
export function podLink({ namespace, pod }) {
    return format({ view: "pod", namespace, name: pod });
}

/** Return the link of a node's page, with one of its devices marked. */
export function deviceLink(node, device = "") {
    return format({ view: "node", node, options: { device } });
}

function decoded(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

// Shows the Pods that wait beside the devices: who, since when, what for and why.

import { element, fill, reconcile } from "../dom.js";
import { podKey } from "../picture.js";
import { podLink } from "../route.js";
import { count, span } from "../units.js";

const SHOWN = 50;

/** Show the longest waiting Pods of *seen* in *parent*. */
export function showWaiting(parent, seen) {
    if (!parent.firstElementChild) {
        parent.append(element("h2", {}, "Waiting"), element("ul", {}), element("p", { class: "more" }));
    }
    fill(parent.querySelector("h2"), "Waiting ", element("span", { class: "tally" }, seen.waiting.length));
    reconcile(parent.querySelector("ul"), seen.waiting.slice(0, SHOWN), {
        key: podKey,
        state: (pod) => JSON.stringify([pod, span(pod.waitedSeconds)]),
        draw: waitingElement,
    });
    const more = seen.waiting.length - SHOWN;
    const rest = more > 0 ? element("a", { href: "#/pods?q=is%3Awaiting" }, `and ${count(more, "Pod")} more`) : null;
    fill(parent.querySelector(".more"), rest ?? (seen.waiting.length ? "" : "No Pod waits for a device."));
}

function waitingElement(pod) {
    return element(
        "li",
        {},
        element(
            "a",
            { href: podLink(pod), "data-focus": podKey(pod) },
            element("span", { class: "waiting-name" }, element("small", {}, `${pod.namespace}/`), pod.pod),
            element("span", { class: "waiting-span" }, span(pod.waitedSeconds)),
        ),
        pod.asks ? element("p", { class: "asks" }, `asks ${pod.asks}`) : null,
        element("p", { class: "cause" }, pod.cause || "The scheduler has not said why."),
    );
}

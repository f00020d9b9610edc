// Shows the Pods that wait beside the devices: who, since when, what for and why.

import { element, fill, reconcile } from "../dom.js";
import { podKey } from "../picture.js";
import { podLink } from "../route.js";
import { count } from "../units.js";

const SHOWN = 50;

/** Show the longest waiting Pods of *seen* in *parent*. */
export function showWaiting(parent, seen) {
    const number = seen.waiting.length;
    if (!parent.firstElementChild) {
        parent.append(element("h2", {}), element("ul", {}), element("p", { class: "more" }));
    }
    reconcile(parent.querySelector("ul"), seen.waiting.slice(0, SHOWN), {
        key: podKey,
        state: JSON.stringify,
        draw: waitingElement,
    });
    if (parent.dataset.number === String(number)) return;
    parent.dataset.number = number;
    fill(parent.querySelector("h2"), "Waiting ", element("span", { class: "tally" }, number));
    fill(parent.querySelector(".more"), rest(number));
}

function rest(number) {
    if (number === 0) return "No Pod waits for a device.";
    return number > SHOWN
        ? element("a", { href: "#/pods?q=is%3Awaiting" }, `and ${count(number - SHOWN, "Pod")} more`)
        : null;
}

function waitingElement(pod) {
    return element(
        "li",
        {},
        element(
            "a",
            { href: podLink(pod), "data-focus": podKey(pod) },
            element("span", { class: "waiting-name" }, element("small", {}, `${pod.namespace}/`), pod.pod),
            element("span", { class: "waiting-span" }, pod.age),
        ),
        pod.asks ? element("p", { class: "asks" }, `asks ${pod.asks}`) : null,
        element("p", { class: "cause" }, pod.cause || "The scheduler has not said why."),
    );
}

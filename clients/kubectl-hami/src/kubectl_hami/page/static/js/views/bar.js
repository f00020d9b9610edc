// Draws a device: a bar as wide as its memory, cut into shares. A share's box is what was granted, its filling what is used.

import { element } from "../dom.js";
import { colour } from "../picture.js";
import { deviceLink, podLink } from "../route.js";
import { matchesShare } from "../search.js";
import { isKnown, memory, memoryOf, percent, share as part } from "../units.js";

/**
 * Return a device as an element with the focusable link to its node's page.
 *
 * owners     of the whole picture, for the colours
 * wanted     the words of the search; the shares of others fade
 */
export function deviceElement(device, node, owners, wanted = []) {
    const name = `${node.name} ${device.index}`;
    return element(
        "article",
        { class: ["device", !device.isHealthy && "is-unhealthy"], "data-device": device.id },
        element(
            "header",
            {},
            element(
                "a",
                {
                    href: deviceLink(node.name, device.id),
                    "data-focus": device.id,
                    "aria-label": inWords(device, name),
                    class: "device-name",
                },
                element("span", { class: "device-index" }, device.index),
                element("span", { class: "device-model" }, device.model),
            ),
            badges(device),
            element("span", { class: "device-amount" }, memoryOf(device.grantedMemoryMib, device.memoryMib)),
        ),
        memoryBar(device, owners, wanted),
        coreBar(device, owners, wanted),
    );
}

/** Return what a person must know about a device or a node before anything else. */
export function badges({ isReady = true, isHealthy = true, isCordoned = false, isMeasured = true }) {
    return [
        isReady ? null : badge("bad", "not ready"),
        isHealthy ? null : badge("bad", "unhealthy"),
        isCordoned ? badge("warning", "cordoned") : null,
        isMeasured ? null : badge("warning", "use unknown"),
    ];
}

/** Return a word that stands out. */
export function badge(tone, text) {
    return element("span", { class: `badge is-${tone}`, title: text }, text);
}

/** Return a sentence about a device, for people who hear it. */
export function inWords(device, name) {
    const used = isKnown(device.usedMemoryMib) ? `, ${memory(device.usedMemoryMib)} used` : "";
    const shares = device.shares.map((share) => `${share.namespace}/${share.pod} ${memory(share.memoryMib)}`);
    const health = device.isHealthy ? "" : ", unhealthy";
    const held = shares.length ? `: ${shares.join(", ")}` : ", no shares";
    return `device ${name}, ${device.model}${health}, ${memoryOf(device.grantedMemoryMib, device.memoryMib)} granted${used}${held}`;
}

function memoryBar(device, owners, wanted) {
    const whole = Math.max(device.memoryMib, device.grantedMemoryMib, 1);
    const boxes = device.shares.map((share) =>
        element(
            "a",
            {
                ...shareProperties(share, owners, wanted),
                href: podLink(share),
                tabindex: -1,
                vars: {
                    ...hue(share, owners),
                    "--granted": share.memoryMib / whole,
                    "--used": filled(share.usedMemoryMib, share.memoryMib),
                },
            },
            element("span", { class: "share-name" }, share.pod),
        ),
    );
    return element("div", { class: "bar memory", "aria-hidden": "true" }, boxes);
}

function coreBar(device, owners, wanted) {
    const whole = Math.max(100, device.grantedCorePercent);
    const boxes = device.shares
        .filter((share) => share.corePercent > 0)
        .map((share) =>
            element("span", {
                ...shareProperties(share, owners, wanted),
                vars: {
                    ...hue(share, owners),
                    "--granted": share.corePercent / whole,
                    "--used": filled(share.usedCorePercent, share.corePercent),
                },
            }),
        );
    return element("div", { class: "bar cores", "aria-hidden": "true" }, boxes);
}

function shareProperties(share, owners, wanted) {
    const classes = ["share", share.isThrottled && "is-throttled", !matchesShare(share, wanted) && "is-faded"];
    return { class: classes, "data-share": `${share.namespace}/${share.pod}/${share.container}` };
}

/** Return the CSS property with the colour of a Pod's owner. */
export function hue(pod, owners) {
    return { "--owner": `var(--owner-${colour(owners, pod)})` };
}

function filled(used, granted) {
    return isKnown(used) ? Math.min(1, part(used, granted) / 100) : 0;
}

/** Return a box that shows how much of what was granted is used, for tables. */
export function useBar(pod, owners) {
    const label = isKnown(pod.usedMib) ? percent(part(pod.usedMib, pod.grantedMib)) : "unknown";
    return element(
        "span",
        { class: "bar use", title: `${label} of the grant is used` },
        element("span", {
            class: "share",
            vars: { ...hue(pod, owners), "--granted": 1, "--used": filled(pod.usedMib, pod.grantedMib) },
        }),
    );
}

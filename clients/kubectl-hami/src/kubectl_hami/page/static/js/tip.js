// Shows the details of the device under the pointer or with the focus, in one box beside it. Small bars have no names on them.

import { element, fill } from "./dom.js";
import { memoryOf, percent } from "./units.js";

const SHARES_SHOWN = 12;
const DISTANCE_PX = 8;

/**
 * Listen in *area*, and fill *box*.
 *
 * find   returns the node and device of an element with `data-device`, or null
 */
export function startTip(area, box, find) {
    const show = (event) => {
        const target = event.target.closest?.("[data-device]");
        const found =
            target && target.closest("[data-size='medium'], [data-size='small']") ? find(target.dataset.device) : null;
        box.hidden = !found;
        if (!found) return;
        const owner = event.target.closest(".share")?.dataset.share;
        fill(box, details(found, owner));
        place(box, target.getBoundingClientRect());
    };
    const hide = () => (box.hidden = true);
    area.addEventListener("pointerover", show);
    area.addEventListener("pointerleave", hide);
    area.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && show(event));
    area.addEventListener("focusout", hide);
    addEventListener("hashchange", hide);
    addEventListener("scroll", hide, { passive: true });
}

function details({ node, device }, owner) {
    const rows = device.shares.slice(0, SHARES_SHOWN).map((share) => {
        const isMarked = owner === `${share.namespace}/${share.pod}/${share.container}`;
        return element(
            "tr",
            { class: isMarked && "is-marked" },
            element("td", {}, element("small", {}, `${share.namespace}/`), share.pod),
            element("td", { class: "number" }, memoryOf(share.usedMemoryMib, share.memoryMib)),
            element("td", { class: "number" }, share.corePercent ? percent(share.corePercent) : ""),
        );
    });
    const more = device.shares.length - rows.length;
    return [
        element("strong", {}, `${node.name} · device ${device.index}`),
        element(
            "p",
            {},
            `${device.model}${device.isHealthy ? "" : ", unhealthy"} · ${memoryOf(device.grantedMemoryMib, device.memoryMib)} granted`,
        ),
        rows.length ? element("table", {}, element("tbody", {}, rows)) : element("p", {}, "no shares"),
        more > 0 ? element("p", {}, `and ${more} more`) : null,
    ];
}

function place(box, target) {
    const { offsetWidth: width, offsetHeight: height } = box;
    const left = Math.min(target.left, innerWidth - width - DISTANCE_PX);
    const below = target.bottom + DISTANCE_PX;
    const top = below + height < innerHeight ? below : target.top - height - DISTANCE_PX;
    box.style.setProperty("left", `${Math.max(DISTANCE_PX, left)}px`);
    box.style.setProperty("top", `${Math.max(DISTANCE_PX, top)}px`);
}

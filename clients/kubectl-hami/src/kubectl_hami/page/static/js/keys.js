// The keyboard: one key focuses the search, arrows walk over the devices, Escape goes one step back.

/**
 * Listen to the keyboard.
 *
 * search   the search field
 * help     the dialog that lists the keys
 * leave    called on Escape where nothing else is left to close
 */
export function startKeys({ search, help, leave }) {
    document.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.altKey || event.metaKey || help.open) return;
        const isTyping = event.target.matches("input, select, textarea");
        if (event.key === "Escape") return escape(event, search, leave);
        if (isTyping) return event.target === search && event.key === "ArrowDown" ? into(event) : undefined;
        if (event.key === "/") return act(event, () => search.focus());
        if (event.key === "?") return act(event, () => help.showModal());
        if (event.target.matches(".nodes .device-name")) walk(event);
    });
}

function act(event, call) {
    event.preventDefault();
    call();
}

function escape(event, search, leave) {
    if (event.target === search && search.value) {
        search.value = "";
        search.dispatchEvent(new Event("input"));
    } else if (event.target === search) search.blur();
    else leave();
}

function into(event) {
    const first = document.querySelector(".nodes .device-name[tabindex='0']");
    if (first) act(event, () => first.focus());
}

function walk(event) {
    const links = [...document.querySelectorAll(".nodes .device-name")];
    const here = links.indexOf(event.target);
    const next = {
        ArrowRight: () => beside(links, event.target, 1, 0) ?? links[here + 1],
        ArrowLeft: () => beside(links, event.target, -1, 0) ?? links[here - 1],
        ArrowDown: () =>
            links[here + 1] && sameNode(links[here], links[here + 1])
                ? links[here + 1]
                : beside(links, event.target, 0, 1),
        ArrowUp: () =>
            links[here - 1] && sameNode(links[here], links[here - 1])
                ? links[here - 1]
                : beside(links, event.target, 0, -1),
        Home: () => links[0],
        End: () => links.at(-1),
    }[event.key]?.();
    if (next === undefined) return;
    event.preventDefault();
    if (next === null) return;
    links[here].setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
}

function sameNode(one, other) {
    return one.closest(".node") === other.closest(".node");
}

/** Return the nearest link in a direction, null if there is none. One step across counts as three along. */
function beside(links, from, right, down) {
    const start = from.getBoundingClientRect();
    let best = null;
    let shortest = Infinity;
    for (const link of links) {
        const box = link.getBoundingClientRect();
        const along = right ? (box.left - start.left) * right : (box.top - start.top) * down;
        const across = Math.abs(right ? box.top - start.top : box.left - start.left);
        const distance = along + 3 * across;
        if (along > 1 && distance < shortest) [best, shortest] = [link, distance];
    }
    return best;
}

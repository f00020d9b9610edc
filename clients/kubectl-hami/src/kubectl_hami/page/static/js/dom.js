// Makes elements. Text becomes text nodes and never HTML, because tenants write the names, causes and Events shown here.

/**
 * Return a new element.
 *
 * properties   attributes by name; `class` may be a list with empty entries; a null or false value is left out, true is an
 *              empty attribute; `on` is a map of event listeners, `vars` a map of CSS custom properties
 * children     elements, texts and numbers, in lists of any depth; null is left out
 */
export function element(name, properties = {}, ...children) {
    const made = document.createElementNS(SVG.has(name) ? "http://www.w3.org/2000/svg" : HTML, name);
    for (const [key, value] of Object.entries(properties)) {
        if (value === null || value === undefined || value === false) continue;
        if (key === "on") Object.entries(value).forEach(([event, listener]) => made.addEventListener(event, listener));
        else if (key === "vars") Object.entries(value).forEach(([name_, text]) => made.style.setProperty(name_, text));
        else if (key === "class") made.setAttribute("class", [value].flat().filter(Boolean).join(" "));
        else if (key === "href" && !String(value).startsWith("#"))
            throw new Error(`a link must stay on the page: ${value}`);
        else made.setAttribute(key, value === true ? "" : READ.has(key) ? visible(String(value)) : String(value));
    }
    return children.length ? fill(made, ...children) : made;
}

/** Make *parent* hold *children* and nothing else, and return it. */
export function fill(parent, ...children) {
    const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
    parent.replaceChildren(...kept.map((child) => (child instanceof Node ? child : visible(String(child)))));
    return parent;
}

/** Return *text* with a mark for each character that is not seen or turns the order of the others round. */
export function visible(text) {
    return text.replace(/[^\P{Cc}\n\t]|[\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, "\ufffd");
}

/** The attributes that people read or hear. */
const READ = new Set(["title", "aria-label"]);
const HTML = "http://www.w3.org/1999/xhtml";
const SVG = new Set(["svg", "path", "line", "g", "text", "circle"]);

/**
 * Make *parent* hold one element for each of *items*, in order, and touch only those that changed.
 *
 * key    returns an item's name, unique among *items*
 * draw   returns an item's element; called only where `state(item)` differs from the last call
 * state  returns a text that decides what is drawn
 */
export function reconcile(parent, items, { key, state, draw }) {
    const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
    let place = parent.firstElementChild;
    for (const item of items) {
        const name = key(item);
        const wanted = state(item);
        let child = known.get(name);
        known.delete(name);
        if (!child || drawn.get(child) !== wanted) {
            const fresh = draw(item);
            fresh.dataset.key = name;
            drawn.set(fresh, wanted);
            if (child) {
                const focus = child.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
                if (place === child) place = fresh;
                child.replaceWith(fresh);
                if (focus) fresh.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
            }
            child = fresh;
        }
        if (place === child) place = child.nextElementSibling;
        else parent.insertBefore(child, place);
    }
    known.forEach((child) => child.remove());
}

/**
 * Make *parent* hold *sections*, and draw only those again whose data changed, so that a selection or an open list stays.
 *
 * sections   each with a unique `name`, the data it shows as `of`, and `draw`; null is left out
 */
export function sections(parent, sections) {
    reconcile(parent, sections.filter(Boolean), {
        key: (section) => section.name,
        state: (section) => JSON.stringify(section.of),
        draw: (section) => section.draw(),
    });
}

const drawn = new WeakMap();

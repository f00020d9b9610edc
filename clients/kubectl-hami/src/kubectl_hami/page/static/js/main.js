// Wires the page: the address says what is shown, the feed says of what, and the views draw it.

import { element, fill, visible } from "./dom.js";
import { ask, follow } from "./feed.js";
import { startKeys } from "./keys.js";
import { picture } from "./picture.js";
import { format, parse } from "./route.js";
import { startTheme } from "./theme.js";
import { startTip } from "./tip.js";
import { clock } from "./units.js";
import { ORDER_NAMES, showDevices } from "./views/devices.js";
import { showDoctor } from "./views/doctor.js";
import { showGrants } from "./views/grants.js";
import { revealDevice, showNode } from "./views/node.js";
import { showPod } from "./views/pod.js";
import { showPods } from "./views/pods.js";
import { showSimulation } from "./views/simulation.js";
import { showSummary } from "./views/summary.js";
import { showUsage } from "./views/usage.js";
import { showWaiting } from "./views/waiting.js";

const part = (id) => document.getElementById(id);
const view = part("view");
const search = part("search");
const help = part("help");
/** What draws each view: *parent*, what was seen, the state, and the answer to the view's question. */
const VIEWS = {
    devices: showDevices,
    pods: showPods,
    node: showNode,
    pod: showPod,
    doctor: showDoctor,
    grants: showGrants,
    usage: showUsage,
    simulate: showSimulation,
};
/** The questions of the views that the picture does not answer. */
const QUESTIONS = {
    node: ({ node }) => `api/nodes/${encodeURIComponent(node)}`,
    pod: ({ namespace, name }) => `api/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`,
    doctor: () => "api/doctor",
    grants: () => "api/grants",
    usage: ({ of, options }) => `api/usage/${encodeURIComponent(of)}?${new URLSearchParams({ span: options.since ?? "" })}`,
};
const SEARCHED = ["devices", "pods", "grants"];
/** The views that have the Pods that wait beside them. */
const BESIDE_WAITING = ["devices", "node", "pod"];
const ANSWER_SECONDS = 10;
const PROBLEMS_SHOWN = 5;

let seen = null;
let state = parse(location.hash);
let told = { path: "", at: 0, answer: null };
let lastOverview = "#/devices";

/** Draw what the address names. Called for each new picture, address and answer. */
function draw() {
    if (!seen) return;
    showSummary(part("summary"), seen);
    showWaiting(part("waiting"), seen);
    document.title = visible([state.name ?? state.node ?? capital(state.view), seen.cluster].filter(Boolean).join(" · "));
    if (view.dataset.view !== state.view) fill(view);
    view.dataset.view = state.view;
    keepingFocus(() => VIEWS[state.view](view, seen, state, answer()));
}

function capital(word) {
    return word[0].toUpperCase() + word.slice(1);
}

/** Return the last answer to the question of this view, null if there is none yet, and ask again if it is old. */
function answer() {
    const path = QUESTIONS[state.view]?.(state) ?? "";
    if (path !== told.path) told = { path, at: 0, answer: null };
    const seconds = told.answer?.refreshSeconds ?? ANSWER_SECONDS;
    if (path && Date.now() - told.at >= seconds * 1000) {
        told.at = Date.now();
        ask(path)
            .catch((error) => ({ problem: error.message }))
            .then((found) => {
                if (told.path !== path) return;
                told.answer = found;
                draw();
            });
    }
    return told.answer;
}

/** Keep the focus on the element of the same name while a view is drawn again. */
function keepingFocus(call) {
    const name = view.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    call();
    if (name && !view.contains(document.activeElement))
        view.querySelector(`[data-focus="${CSS.escape(name)}"]`)?.focus({ preventScroll: true });
}

function go(options, { isStep = false } = {}) {
    const target = format({ ...state, options: { ...state.options, ...options } });
    if (isStep) location.hash = target;
    else history.replaceState(null, "", target);
    if (!isStep) moved();
}

function moved() {
    const before = state;
    state = parse(location.hash);
    const isSearched = SEARCHED.includes(state.view);
    if (isSearched) lastOverview = location.hash;
    if (document.activeElement !== search) search.value = isSearched ? (state.options.q ?? "") : "";
    document
        .querySelectorAll("nav a")
        .forEach((link) => link.setAttribute("aria-current", link.dataset.view === state.view ? "page" : "false"));
    part("order").value = state.options.sort ?? "";
    part("size").value = state.options.size ?? "";
    part("controls").hidden = state.view !== "devices";
    part("body").toggleAttribute("data-alone", !BESIDE_WAITING.includes(state.view));
    draw();
    const isOther = ["view", "node", "name", "namespace"].some((name) => before[name] !== state[name]);
    if (!isOther) return;
    scrollTo(0, 0);
    revealDevice(view);
    if (document.activeElement === document.body) view.focus({ preventScroll: true });
}

function leave() {
    if (SEARCHED.includes(state.view)) go({ q: "" });
    else location.hash = lastOverview;
}

function find(id) {
    for (const node of seen?.nodes ?? []) {
        const device = node.devices.find((one) => one.id === id);
        if (device) return { node, device };
    }
    return null;
}

function start() {
    for (const [value, name] of Object.entries(ORDER_NAMES)) part("order").append(new Option(name, value));
    startTheme(part("theme"));
    startKeys({ search, help, leave });
    startTip(view, part("tip"), find);
    search.addEventListener("input", () => {
        const isStep = !SEARCHED.includes(state.view);
        if (isStep) state = { view: "devices", options: {} };
        go({ q: search.value.trim() }, { isStep });
    });
    part("order").addEventListener("change", (event) => go({ sort: event.target.value }, { isStep: true }));
    part("size").addEventListener("change", (event) => go({ size: event.target.value }, { isStep: true }));
    part("help-open").addEventListener("click", () => help.showModal());
    addEventListener("hashchange", moved);
    follow(
        (json) => {
            seen = picture(json, seen);
            fill(part("cluster"), seen.cluster);
            part("as-of").textContent = `as of ${clock(seen.at)}`;
            fill(
                part("problems"),
                seen.problems.slice(0, PROBLEMS_SHOWN).map((problem) => element("li", {}, problem)),
            );
            draw();
        },
        (sentence) => {
            fill(part("trouble"), sentence);
            part("trouble").hidden = !sentence;
        },
    );
    moved();
}

start();

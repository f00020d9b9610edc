// Shows one Pod: its shares, its use over time, the scheduler's explanation and what would have to change, its Events.

import { element, sections } from "../dom.js";
import { deviceLink } from "../route.js";
import { count, span } from "../units.js";
import { badge } from "./bar.js";
import { curves, origin } from "./chart.js";
import { explanation } from "./explanation.js";
import { shareColumns } from "./shares.js";
import { table } from "./table.js";

/**
 * Show the Pod that *state* names, in *parent*.
 *
 * answer  what the server knows of this Pod alone; null until it has answered
 */
export function showPod(parent, seen, state, answer) {
    const story = answer?.problem ? { events: [], eventsProblem: answer.problem } : answer;
    const pod = seen.pods.get(`${state.namespace}/${state.name}`);
    const status = pod && [pod.isWaiting, pod.phase, pod.age, pod.owner, pod.cause];
    sections(parent, [
        { name: "title", of: [state.namespace, state.name, status], draw: () => title(state, pod) },
        { name: "shares", of: [pod, seen.owners.all], draw: () => held(pod, seen.owners) },
        ...(story ? told(story, seen.at, { mib: pod?.grantedMib ?? 0, percent: pod?.corePercent ?? 0 }) : [{ name: "asking", of: [], draw: () => nothing("Asking the scheduler …") }]),
    ]);
}

function title({ namespace, name }, pod) {
    const word = pod?.isWaiting ? `waits ${pod.age}` : pod?.phase;
    const facts = pod ? [pod.owner, `age ${pod.age}`].filter(Boolean).join(" · ") : "";
    return element(
        "div",
        {},
        element(
            "h1",
            {},
            element("small", {}, `${namespace}/`),
            name,
            word ? badge(pod.cause || pod.isWaiting ? "warning" : "plain", word) : null,
        ),
        facts ? element("p", { class: "facts" }, facts) : null,
        pod?.cause && !pod.isWaiting ? element("p", { class: "problem" }, pod.cause) : null,
    );
}

function held(pod, owners) {
    if (!pod) return nothing("This Pod neither holds nor waits for a device now.");
    if (pod.isWaiting) return element("p", { class: "facts" }, pod.asks ? `asks ${pod.asks}` : "");
    const heading = element("h2", {}, count(pod.shares.length, "share"));
    return element("section", { "aria-label": "shares" }, heading, table(columns(owners), pod.shares));
}

function columns(owners) {
    const link = (name, device, text, id = "") =>
        element("a", { href: deviceLink(device.node, id), "data-focus": `${name} ${device.id}` }, text);
    const place = [
        { name: "Container", cell: (share) => share.container },
        { name: "Node", cell: ({ device }) => link("node", device, device.node) },
        {
            name: "Device",
            cell: ({ device }) => link("device", device, `${device.index} · ${device.model}`, device.id),
        },
    ];
    return [...place, ...shareColumns(owners)];
}

function told(story, now, granted) {
    const ages = story.events.map((event) => (event.at ? span((now - Date.parse(event.at)) / 1000) : "–"));
    return [
        story.history?.times.length
            ? { name: "history", of: [story.history, granted], draw: () => use(story.history, granted) }
            : null,
        story.historyProblem
            ? { name: "no history", of: story.historyProblem, draw: () => problem(story.historyProblem) }
            : null,
        story.explanation
            ? { name: "explanation", of: story.explanation, draw: () => explanation(story.explanation) }
            : null,
        story.explanationProblem
            ? { name: "no explanation", of: story.explanationProblem, draw: () => problem(story.explanationProblem) }
            : null,
        { name: "events", of: [story.events, ages, story.eventsProblem], draw: () => events(story, ages) },
    ];
}

function use(history, granted) {
    return element(
        "section",
        { "aria-label": "use over time" },
        element("h2", {}, "Use over time"),
        element("div", { class: "charts" }, curves(history, granted)),
        element("p", { class: "facts" }, origin(history)),
    );
}

function events({ events: found, eventsProblem }, ages) {
    const rows = found.map((event, place) => ({ ...event, age: ages[place] }));
    const none = eventsProblem ? problem(eventsProblem) : nothing("None. Kubernetes keeps them for an hour.");
    const list = rows.length
        ? table(EVENT_COLUMNS, rows, { rowClass: (event) => event.type === "Warning" && "is-warning" })
        : none;
    return element("section", { "aria-label": "Events" }, element("h2", {}, "Events"), list);
}

const EVENT_COLUMNS = [
    { name: "Ago", isNumber: true, cell: (event) => event.age },
    { name: "Times", isNumber: true, cell: (event) => event.count },
    { name: "Reason", cell: (event) => event.reason },
    { name: "Message", isLong: true, cell: (event) => event.message },
];

function problem(sentence) {
    return element("p", { class: "problem" }, sentence);
}

function nothing(sentence) {
    return element("p", { class: "nothing" }, sentence);
}

// Writes amounts, times and counts the same way everywhere. Knows nothing of where they are shown.

const WHOLE_FROM_GIB = 1000;

/**
 * Return *mib* in GiB without the unit, a dash where it is unknown: "23.4", "0.39", "1 277".
 *
 * The page writes every amount of memory in GiB. What it quotes, such as requests and the scheduler's sentences, keeps its words.
 */
export function gib(mib) {
    if (!isKnown(mib)) return "–";
    const amount = mib / 1024;
    if (amount >= WHOLE_FROM_GIB) return thousands(Math.round(amount));
    return amount > 0 && amount < 1 ? Math.max(0.01, amount).toFixed(2) : amount.toFixed(1);
}

/** Return "23.4 GiB". */
export function memory(mib) {
    return isKnown(mib) ? `${gib(mib)}\u00a0GiB` : "–";
}

/** Return "12.0 of 40.0 GiB" for the memory of one device. */
export function memoryOf(mib, wholeMib) {
    return `${gib(mib)} of ${memory(wholeMib)}`;
}

/** Return *number* with thin spaces between thousands: "40 960". */
function thousands(number) {
    return number.toString().replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** Return "37 %", or a dash where *percent* is unknown. */
export function percent(value) {
    return isKnown(value) ? `${Math.round(value)}\u00a0%` : "–";
}

/** Return how large *part* of *whole* is, 0 to 100 or more; 0 where there is no whole. */
export function share(part, whole) {
    return whole > 0 ? (100 * part) / whole : 0;
}

/** Return "1 device" or "4 devices". */
export function count(number, noun, plural = `${noun}s`) {
    return `${number}\u00a0${number === 1 ? noun : plural}`;
}

/** Return a time span in its two largest units: "3 d 4 h", "12 min", "8 s". */
export function span(seconds) {
    const left = Math.max(0, Math.round(seconds));
    const parts = [
        ["d", 86400],
        ["h", 3600],
        ["min", 60],
        ["s", 1],
    ];
    const first = parts.findIndex(([, size]) => left >= size);
    if (first < 0) return "0\u00a0s";
    const [unit, size] = parts[first];
    const next = parts[first + 1];
    const rest = next && size > 60 ? Math.floor((left % size) / next[1]) : 0;
    return `${Math.floor(left / size)}\u00a0${unit}${rest ? ` ${rest}\u00a0${next[0]}` : ""}`;
}

/** Return the time of day of *when*, milliseconds since 1970, in the reader's time zone. */
export function clock(when) {
    return new Date(when).toLocaleTimeString([], {
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hour12: false,
    });
}

/** Return whether a measurement is there. */
export function isKnown(value) {
    return value !== null && value !== undefined;
}

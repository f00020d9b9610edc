// Asks the server for the picture and for one Pod's story, again and again. The only module that uses the network.

const HIDDEN_SECONDS = 60;

/**
 * Call *show* with each new picture, and *fail* with a sentence whenever there is none.
 *
 * The page that nobody looks at asks once a minute. Returns a function that asks at once.
 */
export function follow(show, fail) {
    let timer = null;
    let isAsking = false;
    let etag = "";
    let seconds = 5;

    async function ask() {
        clearTimeout(timer);
        if (isAsking) return;
        isAsking = true;
        try {
            const answer = await fetch("api/picture", {
                headers: etag ? { "If-None-Match": etag } : {},
                cache: "no-store",
            });
            if (answer.status === 304) fail("");
            else {
                const json = await read(answer);
                etag = answer.headers.get("ETag") ?? "";
                seconds = json.refreshSeconds ?? seconds;
                fail("");
                show(json);
            }
        } catch (error) {
            fail(sentence(error));
        } finally {
            isAsking = false;
            timer = setTimeout(ask, 1000 * (document.hidden ? HIDDEN_SECONDS : seconds));
        }
    }

    document.addEventListener("visibilitychange", () => document.hidden || ask());
    ask();
    return ask;
}

/** Return what the server knows of one Pod. Raises an Error whose message is a sentence. */
export async function story(namespace, name) {
    try {
        return await read(
            await fetch(`api/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, { cache: "no-store" }),
        );
    } catch (error) {
        throw new Error(sentence(error));
    }
}

async function read(answer) {
    if (answer.ok) return answer.json();
    const text = await answer.text();
    throw new Refused(text || `The server answered ${answer.status}.`);
}

class Refused extends Error {}

function sentence(error) {
    return error instanceof Refused ? error.message : "kubectl hami ui does not answer. It may have ended.";
}

// Asks the server: for the picture again and again, and for answers that one view shows. The only module that uses the network.

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

/**
 * Return the server's answer to a question.
 *
 * text   sent with it, if there is any
 * Raises an Error whose message is a sentence.
 */
export async function ask(path, text = null) {
    try {
        return await read(await fetch(path, { cache: "no-store", ...(text === null ? {} : { method: "POST", body: text }) }));
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

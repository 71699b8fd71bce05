// Talking to the server. Addresses are relative: the page's own path holds the secret.
const token = location.pathname.split("/")[1];
const csrf = document.querySelector("meta[name=csrf]")?.content ?? "";

async function answer(response) {
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  try { text = (await response.json()).error || text; } catch { /* no JSON: keep the status */ }
  throw new Error(text);
}

async function get(path) {
  try {
    return await answer(await fetch(`api/${path}`));
  } catch (error) {
    if (error instanceof TypeError) throw new Error("the program does not answer; is it still running?");
    throw error;
  }
}

export const getJson = async (path) => (await get(path)).json();
export const getNumbers = async (path) => new Float64Array(await (await get(path)).arrayBuffer());
export const getPicture = async (frame) =>
  createImageBitmap(await (await get(`frames/${frame}.jpg?side=1920`)).blob());

export async function postAction(revision, action) {
  const request = {
    method: "POST",
    headers: { "content-type": "application/json", "x-review-token": token, "x-csrf-token": csrf },
    body: JSON.stringify({ revision, action }),
  };
  let response;
  try {
    response = await fetch("api/actions", request);
  } catch {
    throw new Error("nothing was kept: the program does not answer; is it still running?");
  }
  return (await answer(response)).json();
}

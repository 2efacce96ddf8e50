// Calls of /api/v1, and what the page remembers: the run, the author, the token of this tab.

export const state = { runs: [], run: null, author: "" };

const token = () => sessionStorage.getItem("token");

export const keepToken = (text) => sessionStorage.setItem("token", text);

export async function call(path, { params = {}, body, method = body ? "POST" : "GET", signal } = {}) {
  const given = Object.entries(params).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(given).toString();
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (token()) headers.Authorization = `Bearer ${token()}`;
  let answer;
  try {
    answer = await fetch(`/api/v1${path}${query ? `?${query}` : ""}`,
      { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("puda serve does not answer: is it still running?");
  }
  const kind = answer.headers.get("content-type") ?? "";
  const content = kind.startsWith("application/json") ? await answer.json() : await answer.text();
  if (answer.ok) return content;
  const error = new Error(content.error ?? `${answer.status} ${answer.statusText}`);
  error.status = answer.status;
  throw error;
}

export const ofRun = (path, params, more) =>
  call(`/runs/${encodeURIComponent(state.run.name)}${path}`, { params, ...more });

export const judge = (fact, verdict, note = "") =>
  ofRun("/verdicts", {}, {
    body: { head: fact.head, relation: fact.relation, tail: fact.tail, verdict, note, author: state.author },
  });

// Files go through fetch, so that the token stays out of addresses.
export async function download(path, name) {
  const text = await call(path);
  const content = typeof text === "string" ? text : JSON.stringify(text);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: "text/plain" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const address = (page, params = {}) => {
  const given = Object.entries({ run: state.run?.name, ...params }).filter(([, v]) => v != null && v !== "");
  return `#/${page}?${new URLSearchParams(given)}`;
};

"use strict";
// Asks the API every two seconds and shows the answers. Text only ever enters the page as text, never as markup.

const EVERY_MS = 2000;
const TONE = { succeeded: "good", failed: "bad", timed_out: "bad", lost: "bad", missed: "bad", running: "busy", cancelling: "busy", claimed: "busy" };
const byId = (id) => document.getElementById(id);

class LoggedOut extends Error {}

async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin", headers: { Accept: "application/json" } });
  if (answer.status === 401) throw new LoggedOut();
  if (!answer.ok) throw new Error(`${answer.status} from ${path}`);
  return answer.json();
}

async function refresh() {
  try {
    const [cluster, runs] = await Promise.all([ask("/api/v1/cluster"), ask("/api/v1/runs?limit=15")]);
    show(true);
    showCounts(cluster);
    showRuns(runs.runs);
    showNodes(cluster.nodes);
    byId("footer").textContent = `Server time ${clock(cluster.now)} · leader ${cluster.leader ?? "none"} · ${cluster.shards_owned} shards owned`;
    health("live", "good");
  } catch (error) {
    if (error instanceof LoggedOut) {
      show(false);
      health("not logged in", "busy");
    } else {
      health("cannot reach the server, trying again", "bad");
    }
  }
  // After the answer, not at a fixed beat: a slow server must not get more questions.
  setTimeout(refresh, document.hidden ? EVERY_MS * 5 : EVERY_MS);
}

function show(loggedIn) {
  byId("board").hidden = !loggedIn;
  byId("login").hidden = loggedIn;
}

function health(text, tone) {
  const pill = byId("health");
  pill.textContent = text;
  pill.className = `pill ${tone}`;
}

function showCounts(cluster) {
  const live = cluster.live ?? {};
  const hour = cluster.last_hour ?? {};
  const sum = (from, ...names) => names.reduce((total, name) => total + (from[name] ?? 0), 0);
  const failed = sum(hour, "failed", "timed_out", "lost");
  const tiles = [
    ["running", sum(live, "running", "claimed", "cancelling"), "busy"],
    ["waiting", sum(live, "queued", "waiting"), ""],
    ["succeeded in the last hour", sum(hour, "succeeded"), "good"],
    ["failed in the last hour", failed, failed ? "bad" : ""],
    ["missed in the last hour", sum(hour, "missed"), sum(hour, "missed") ? "bad" : ""],
    ["next due", cluster.next_due ? clock(cluster.next_due) : "–", ""],
  ];
  byId("counts").replaceChildren(...tiles.map(([name, value, tone]) => {
    const tile = element("div", "", "tile");
    tile.append(element("b", typeof value === "number" ? value.toLocaleString() : value, tone), element("span", name));
    return tile;
  }));
}

function showRuns(runs) {
  byId("no-runs").hidden = runs.length > 0;
  byId("runs").replaceChildren(...runs.map((run) => row([
    element("td", run.job_name),
    element("td", run.status.replace("_", " "), TONE[run.status] ?? ""),
    element("td", clock(run.scheduled_for)),
    element("td", length(run.lateness_ms), "number"),
    element("td", length(run.duration_ms), "number"),
    element("td", run.executor ?? ""),
    element("td", (run.error ?? run.reason ?? "").split("\n")[0].slice(0, 160), "said"),
  ])));
}

function showNodes(nodes) {
  byId("nodes").replaceChildren(...nodes.map((node) => row([
    element("td", node.name),
    element("td", node.role),
    element("td", clock(node.started_at)),
    element("td", `${node.lease_seconds_left.toFixed(1)} s`, node.lease_seconds_left > 0 ? "number" : "number bad"),
  ])));
}

function row(cells) {
  const line = document.createElement("tr");
  line.append(...cells);
  return line;
}

function element(tag, text, classes = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

function clock(instant) {
  const time = new Date(instant);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString() : time.toLocaleString();
}

function length(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

refresh();

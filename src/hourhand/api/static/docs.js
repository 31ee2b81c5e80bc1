"use strict";
// Shows /openapi.json as a list of routes. Text only ever enters the page as text, never as markup.

const METHODS = ["get", "post", "put", "patch", "delete"];

async function load() {
  const answer = await fetch("/openapi.json", { credentials: "same-origin" });
  if (!answer.ok) {
    document.getElementById("login").hidden = false;
    return;
  }
  show(await answer.json());
}

function show(api) {
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((name) => item[name])) {
      const tag = item[method].tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(route(api, method, path, item[method]));
    }
  }
  const main = document.getElementById("routes");
  main.append(element("p", api.info.description, "empty"));
  for (const [tag, routes] of groups) {
    const section = element("section", "", "card");
    section.append(element("h2", tag), ...routes);
    main.append(section);
  }
}

function route(api, method, path, operation) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.append(element("span", method.toUpperCase(), "method"), element("span", path, "path"), element("span", operation.summary, "what"));
  details.append(summary);
  if (operation.description) details.append(element("p", operation.description));
  if (operation.security && operation.security.length === 0) details.append(element("p", "No token needed.", "empty"));
  if (operation.parameters.length) details.append(element("h3", "Parameters"), parameters(operation.parameters));
  if (operation.requestBody) {
    const needed = operation.requestBody.required ? "Body" : "Body (optional)";
    for (const [type, media] of Object.entries(operation.requestBody.content)) {
      details.append(element("h3", `${needed} · ${type}`), element("pre", written(api, media.schema)));
    }
  }
  for (const [status, answer] of Object.entries(operation.responses)) {
    for (const [type, media] of Object.entries(answer.content ?? {})) {
      const name = status === "default" ? "Otherwise" : `Answer ${status}`;
      details.append(element("h3", `${name} · ${type}`), element("pre", written(api, media.schema)));
    }
  }
  return details;
}

function parameters(list) {
  const table = document.createElement("table");
  for (const parameter of list) {
    const line = document.createElement("tr");
    line.append(element("td", parameter.name), element("td", `in ${parameter.in}`), element("td", written({}, parameter.schema)), element("td", parameter.description ?? "", "said"));
    table.append(line);
  }
  return table;
}

// A schema in the shape of the JSON it describes.
function written(api, schema, indent = "", seen = []) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    if (seen.includes(name)) return name;
    return written(api, api.components.schemas[name], indent, [...seen, name]);
  }
  if (schema.anyOf) return schema.anyOf.map((part) => written(api, part, indent, seen)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `[${schema.items ? written(api, schema.items, indent, seen) : "…"}]`;
  if (schema.properties) {
    const deeper = indent + "  ";
    const required = schema.required ?? [];
    const lines = Object.entries(schema.properties).map(([name, part]) =>
      `${deeper}"${name}"${required.includes(name) ? "" : "?"}: ${written(api, part, deeper, seen)}`);
    return lines.length ? `{\n${lines.join(",\n")}\n${indent}}` : "{}";
  }
  if (schema.type === "object") return "{ … }";
  if (!schema.type) return "any";
  const range = schema.minimum !== undefined ? ` ${schema.minimum}..${schema.maximum ?? ""}` : "";
  return (schema.format ? `${schema.type} (${schema.format})` : schema.type) + range;
}

function element(tag, text, classes = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

load();

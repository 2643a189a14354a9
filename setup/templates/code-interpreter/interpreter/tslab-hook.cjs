// Loaded by the kernel of JavaScript and TypeScript before tslab: makes results and errors of what tslab prints as if the code had printed it.
const { format, inspect } = require("node:util");

const TSLAB = "/usr/local/lib/node_modules/tslab";
const { log, error } = console;

/** Only tslab's own call has its executor as the immediate caller. */
function isByTslab() {
  const caller = (new Error().stack || "").split("\n")[3] || "";
  return /tslab[^:]*executor\.js/.test(caller);
}

const show = (type, text) => require(TSLAB).display.raw(type, text);

console.log = function (...shown) {
  if (!isByTslab()) return log.apply(console, shown);
  show("text/x-svc-result", typeof shown[0] === "string" ? shown[0] : inspect(shown[0]));
};

console.error = function (...shown) {
  if (!isByTslab()) return error.apply(console, shown);
  const [thrown] = shown;
  const compiled = { name: "CompileError", value: format(...shown), traceback: format(...shown) };
  const other = { name: "Error", value: inspect(thrown), traceback: inspect(thrown) };
  const failed = shown.length > 1 ? compiled : thrown instanceof Error ? { name: thrown.name, value: thrown.message, traceback: thrown.stack } : other;
  show("application/x-svc-error", JSON.stringify(failed));
};

// Rules by host as clients send them: which are accepted, which host they apply to, and how placeholders are filled in.
import assert from "node:assert/strict";
import { test } from "node:test";
import { filled, hasRules, headersFor } from "../src/egress/host-rules.ts";
import { type EgressInput, egressOf as policyOf } from "../src/egress/rules.ts";
import { authoritiesOf, hostAsked, requestHeaders, responseHeaders } from "../src/intercept/headers.ts";

const egressOf = (input: EgressInput) => policyOf(input, { tokens: [], seal: (password) => `sealed ${password}` });

const rule = (headers: Record<string, string>) => [{ transform: { headers } }];

void test("hosts are normalized, and an exact entry, then the longest wildcard, applies alone", () => {
  const { rules } = egressOf({
    rules: { "API.Example.com.": rule({ A: "exact" }), "*.example.com": rule({ A: "wide", B: "wide" }), "*.deep.example.com": rule({ A: "deep" }) },
  });
  const headersAt = (host: string) => headersFor(rules, host)?.map(({ name, template }) => `${name}=${template}`);
  assert.deepEqual(headersAt("api.example.com"), ["a=exact"]);
  assert.deepEqual(headersAt("other.example.com"), ["a=wide", "b=wide"]);
  assert.deepEqual(headersAt("x.y.deep.example.com"), ["a=deep"]);
  assert.deepEqual(headersAt("deep.example.com"), ["a=wide", "b=wide"]);
  assert.equal(headersAt("example.com"), undefined);
  assert.equal(headersAt("notexample.com"), undefined);
  assert.equal(hasRules(undefined, "example.com"), false);
});

void test("of several transforms a later one replaces headers of earlier ones", () => {
  const { rules } = egressOf({ rules: { "a.test": [...rule({ "X-A": "1", "X-B": "1" }), {}, ...rule({ "x-a": "2" })] } });
  assert.deepEqual(headersFor(rules, "a.test"), [
    { name: "x-a", template: "2" },
    { name: "x-b", template: "1" },
  ]);
});

void test("rules that cannot apply are refused with their host and header", () => {
  const refused: [Record<string, ReturnType<typeof rule>>, RegExp][] = [
    [{ "*": rule({}) }, /network.rules: "\*": '\*' alone is not a domain/],
    [{ "1.2.3.4": rule({}) }, /network.rules: "1.2.3.4": rules apply to hosts by name/],
    [{ "2001:db8::1": rule({}) }, /rules apply to hosts by name/],
    [{ "https://a.test/": rule({}) }, /without scheme, port or path/],
    [{ "a.test": rule({}), "A.test.": rule({}) }, /mean the same host/],
    [{ "a.test": rule({ Host: "b.test" }) }, /network.rules\["a.test"\]: header "Host" belongs to the connection/],
    [{ "a.test": rule({ "Transfer-Encoding": "chunked" }) }, /belongs to the connection/],
    [{ "a.test": rule({ A: "$" + "{e2b.identity.tokens.none}" }) }, /names the identity token "none"; this sandbox has none/],
    [{ "a.test": rule({ A: "$" + "{e2b.other.x}" }) }, /a placeholder is/],
    [{ "a.test": rule({ A: "$" + "{e2b.secrets.x" }) }, /a placeholder is/],
    [Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`h${at}.test`, rule({})])), /expected at most 64 hosts, got 65/],
  ];
  for (const [rules, message] of refused) assert.throws(() => egressOf({ rules }), message);
});

void test("placeholders are filled in once: a value that looks like one stays as it is", () => {
  const hole = "$" + "{e2b.secrets.b}";
  assert.equal(
    filled(`x $${"{e2b.secrets.a}"}-$${"{e2b.identity.tokens.t}"} y`, ({ kind, name }) => (kind === "secret" ? hole : `token of ${name}`)),
    `x ${hole}-token of t y`,
  );
  assert.equal(
    filled("$" + "{e2b.secrets.a}", () => "$& $1 $$"),
    "$& $1 $$",
  );
});

void test("headers of the connection end at the node, and set headers replace all of the request's own", () => {
  const raw = [
    "Host",
    "a.test",
    "X-Key",
    "own",
    "Connection",
    "keep-alive, X-Mine",
    "X-Mine",
    "1",
    "Keep-Alive",
    "5",
    "TE",
    "trailers, gzip",
    "x-key",
    "again",
  ];
  assert.deepEqual(requestHeaders(raw, [["x-key", "set"]]), ["Host", "a.test", "TE", "trailers", "x-key", "set"]);
  assert.deepEqual(requestHeaders(["Connection", "Upgrade", "Upgrade", "websocket"], [], ["connection", "upgrade"]), [
    "Connection",
    "Upgrade",
    "Upgrade",
    "websocket",
  ]);
  assert.deepEqual(responseHeaders(["Date", "now", "Alt-Svc", 'h3=":443"', "Connection", "close", "Set-Cookie", "a", "Set-Cookie", "b"]), [
    "Date",
    "now",
    "Set-Cookie",
    "a",
    "Set-Cookie",
    "b",
  ]);
});

void test("a request names one host, whatever its spelling; one that names several, in any form, names none", () => {
  const asked = (target: string, ...hosts: string[]) =>
    hostAsked(
      authoritiesOf(
        hosts.flatMap((host) => ["Host", host]),
        target,
      ),
    );
  assert.equal(asked("/", "A.test:443"), "a.test");
  assert.equal(asked("https://a.test/x?y", "a.test."), "a.test");
  assert.equal(asked("*", "a.test"), "a.test");
  assert.equal(asked("/"), undefined);
  assert.equal(asked("/", "a.test", "b.test"), undefined);
  assert.equal(asked("https://b.test/", "a.test"), undefined);
  assert.equal(asked("https://user@a.test/", "a.test"), undefined);
  assert.equal(asked("b.test:443", "a.test"), undefined);
  assert.equal(asked("/", "a.test:8443"), "a.test:8443");
});

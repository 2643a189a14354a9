// Sessions of the console: when they end, what renews them, and links that work once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Guard } from "../src/console/guard.ts";
import { cookieHeader, Sessions } from "../src/console/sessions.ts";

const HOUR = 3_600_000;

function open(apiKey = "the-key") {
  const clock = { ms: 1_000_000 };
  return { clock, sessions: new Sessions({ apiKey, hours: 12, nowMs: () => clock.ms }) };
}
const cookieOf = (port: string, value: string) => `other=1; svc_console_${port}=${value}`;

void test("a session ends after its hours unless it is used, and a use in its second half renews it", () => {
  const { clock, sessions } = open();
  const { cookie, half, session } = sessions.signIn({ key: "the-key", isReadOnly: false });
  const find = (value: string) => sessions.find(cookieOf("80", value), "80", half);
  assert.equal(find(cookie)?.id, session.id);
  assert.equal(sessions.renewed(session), undefined, "nothing to renew in the first half");
  clock.ms += 7 * HOUR;
  const renewed = sessions.renewed(session);
  clock.ms += 6 * HOUR;
  assert.equal(find(cookie), undefined, "the first cookie has expired");
  assert.equal(find(renewed?.cookie ?? "")?.id, session.id, "the page's half stays valid over a renewal");
});

void test("a session survives a restart of its server, and no other key", () => {
  const { cookie, half } = open().sessions.signIn({ key: "the-key", isReadOnly: true });
  assert.equal(open().sessions.find(cookieOf("80", cookie), "80", half)?.isReadOnly, true);
  assert.equal(open("another-key").sessions.find(cookieOf("80", cookie), "80", half), undefined);
});

void test("a cookie that was changed, that is of another port, or without its half opens nothing", () => {
  const { sessions } = open();
  const { cookie, half } = sessions.signIn({ key: "the-key", isReadOnly: true });
  for (const changed of [cookie.replace(".r.", ".w."), cookie.replace(/^\d+/, "99999999999999"), cookie.slice(0, -1), ""])
    assert.equal(sessions.find(cookieOf("80", changed), "80", half), undefined, changed);
  assert.equal(sessions.find(cookieOf("81", cookie), "80", half), undefined);
  assert.equal(sessions.find(cookieOf("80", cookie), "80", undefined), undefined);
  assert.equal(sessions.find(`svc_console_80=forged; ${cookieOf("80", cookie)}`, "80", half)?.isReadOnly, true, "a forged cookie beside it changes nothing");
});

void test("a session that signed out stays signed out", () => {
  const { sessions } = open();
  const { cookie, half, session } = sessions.signIn({ key: "the-key", isReadOnly: false });
  sessions.signOut(session);
  assert.equal(sessions.find(cookieOf("80", cookie), "80", half), undefined);
});

void test("a link signs in once, within ten minutes, and keeps its limit", () => {
  const { clock, sessions } = open();
  const { token } = sessions.link(true);
  assert.equal(sessions.signIn({ once: token, isReadOnly: false }).session.isReadOnly, true);
  assert.throws(() => sessions.signIn({ once: token, isReadOnly: false }), { name: "UNAUTHENTICATED" });
  const late = sessions.link(false);
  clock.ms += 11 * 60_000;
  assert.throws(() => sessions.signIn({ once: late.token, isReadOnly: false }), { name: "UNAUTHENTICATED" });
});

void test("many wrong keys are answered with 429, while the right one still signs in", () => {
  const { sessions } = open();
  const wrong = () => sessions.signIn({ key: "wrong", isReadOnly: false });
  for (let attempt = 0; attempt < 20; attempt++) assert.throws(wrong, { name: "UNAUTHENTICATED" });
  assert.throws(wrong, { name: "TOO_MANY_REQUESTS" });
  assert.equal(sessions.signIn({ key: "the-key", isReadOnly: false }).session.isReadOnly, false);
});

void test("the console's cookie is Secure if the request came by TLS, whether or not the browser names its origin", () => {
  const guard = new Guard({ hosts: [], domains: [] });
  const cookieFor = (headers: Record<string, string>) => {
    const { port, isSecure } = guard.own({ host: "localhost", ...headers });
    return cookieHeader(port, "value", 60, isSecure);
  };
  assert.match(cookieFor({ "x-forwarded-proto": "https" }), /^svc_console_443=value; .*; Secure$/);
  assert.match(cookieFor({ origin: "https://localhost" }), /; Secure$/);
  assert.doesNotMatch(cookieFor({ "x-forwarded-proto": "http" }), /Secure/);
});

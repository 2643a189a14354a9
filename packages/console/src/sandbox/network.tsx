// The destinations that a sandbox may reach, and those that were denied: each denial shows the rule that would allow it, and one click adds it.
import type { ConsoleLogEntry } from "@svc/contract/console.ts";
import type { SandboxDetail } from "@svc/contract/sandbox.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count } from "../format.ts";
import { Ago, Empty, Problem, Scroll } from "../parts.tsx";
import { events } from "../rows.ts";
import { call, isReadOnly, messageOf } from "../session.ts";
import { say } from "../toasts.tsx";
import { useLog } from "./logs.tsx";
import type { TabProps } from "./sandbox.tsx";

type Denied = { readonly rule: string | undefined; readonly what: string; readonly why: string; at: number; times: number };
/** The reasons of denials that a rule of the sandbox can lift; all other destinations are closed for every sandbox. */
const allowable: ReadonlySet<string> = new Set(["policy", "dns"]);

function denialsOf(entries: readonly ConsoleLogEntry[]): Denied[] {
  const found = new Map<string, Denied>();
  for (const { fields, message, timestamp } of entries) {
    if (fields["kind"] !== "network" || fields["reason"] === undefined) continue;
    const { name, address, port, protocol, reason, repeated } = fields as Record<string, string | undefined>;
    const rule = allowable.has(reason ?? "") ? (name ?? address) : undefined;
    const what = `${protocol ?? ""} ${name ?? address ?? ""}${port === undefined ? "" : `:${port}`}`.trim();
    const times = Number(repeated ?? 1) || 1;
    const known = found.get(`${what} ${reason}`);
    if (known === undefined) found.set(`${what} ${reason}`, { rule, what, why: message, at: Date.parse(timestamp), times });
    else {
      known.at = Date.parse(timestamp);
      known.times += times;
    }
  }
  return [...found.values()].sort((a, b) => b.at - a.at);
}

export function Network({ row }: TabProps): JSX.Element {
  const { entries, problem } = useLog(row.id);
  const [detail, setDetail] = useState<SandboxDetail>();
  const [failure, setFailure] = useState("");
  const mark = events.filter(({ sandboxID, type }) => sandboxID === row.id && type === "sandbox.network_changed").length;
  useEffect(() => {
    if (row.state === "ended") return;
    call<SandboxDetail>("getSandbox", { sandboxID: row.id }).then(setDetail, (error: unknown) => setFailure(messageOf(error)));
  }, [row.id, row.state, mark]);
  const denials = denialsOf(entries);
  const allowed = detail?.network?.allowOut ?? [];
  const set = async (allowOut: readonly string[], said: string) => {
    const { network, allowInternetAccess } = await call<SandboxDetail>("getSandbox", { sandboxID: row.id });
    const denyOut = network?.denyOut;
    await call("setSandboxNetwork", {
      sandboxID: row.id,
      ...(allowOut.length === 0 ? {} : { allowOut }),
      ...(denyOut === undefined || denyOut.length === 0 ? {} : { denyOut }),
      // The call replaces all rules: without this member, a sandbox that was cut off could reach the internet again.
      ...(allowInternetAccess === false ? { allow_internet_access: false } : {}),
    });
    setDetail(await call<SandboxDetail>("getSandbox", { sandboxID: row.id }));
    say(said);
  };
  const allow = (rule: string) =>
    void set([...new Set([...allowed, rule])], `${row.id} may reach ${rule} from now on.`).catch((error: unknown) => say(messageOf(error), "bad"));
  const withdraw = (rule: string) =>
    void set(
      allowed.filter((each) => each !== rule),
      `${row.id} has no rule for ${rule} any more.`,
    ).catch((error: unknown) => say(messageOf(error), "bad"));
  return (
    <Scroll label="Network" kind="columns">
      <div>
        <h2>Rules</h2>
        <Problem error={failure} />
        {detail === undefined ? null : (
          <dl>
            <dt>Internet</dt>
            <dd>{detail.allowInternetAccess === false ? "closed, except for what is allowed" : "open, except for what is denied"}</dd>
            <dt>Allowed</dt>
            <dd>
              {allowed.length === 0 ? <span class="muted">no rules</span> : null}
              {allowed.map((rule) => (
                <div key={rule}>
                  <code>{rule}</code>{" "}
                  {isReadOnly() ? null : (
                    <button type="button" class="small" aria-label={`Withdraw the rule for ${rule}`} onClick={() => withdraw(rule)}>
                      Withdraw
                    </button>
                  )}
                </div>
              ))}
            </dd>
            <dt>Denied</dt>
            <dd>{detail.network?.denyOut?.join(", ") ?? "private ranges, cloud metadata and the host, as for every sandbox"}</dd>
          </dl>
        )}
      </div>
      <div>
        <h2>Denied connections</h2>
        <Problem error={problem} />
        {denials.length === 0 ? <Empty title="Nothing was denied." /> : null}
        <table>
          <tbody>
            {denials.map(({ rule, what, why, at, times }) => (
              <tr key={`${what} ${why}`}>
                <td class="number">
                  <Ago at={at} />
                </td>
                <td class="number">{count(times)}×</td>
                <td class="wrap">{why}</td>
                <td>
                  {rule === undefined ? (
                    <span class="muted">closed for every sandbox</span>
                  ) : allowed.includes(rule) ? (
                    <span class="state running">allowed</span>
                  ) : isReadOnly() || row.state === "ended" ? (
                    <code>{rule}</code>
                  ) : (
                    <button type="button" class="small primary" onClick={() => allow(rule)}>
                      Allow {rule}
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Scroll>
  );
}

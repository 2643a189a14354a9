// Small components that all views share: times, states, copy buttons, empty views.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { duration, exact } from "./format.ts";
import { serverNow } from "./session.ts";
import { say } from "./toasts.tsx";

/** The server's time, updated once a second, for all relative times on the page. */
export const now = signal(serverNow());
setInterval(() => {
  if (!document.hidden) now.value = serverNow();
}, 1000);

export function Ago({ at }: { readonly at: number }): JSX.Element {
  return (
    <time dateTime={new Date(at).toISOString()} title={exact(at)}>
      {duration(now.value - at)} ago
    </time>
  );
}

/** Draws the remaining time as a bar that shrinks; a paused sandbox has none. */
export function Left({ from, until }: { readonly from: number; readonly until: number }): JSX.Element {
  const leftMs = Math.max(0, until - now.value);
  const share = Math.min(1, leftMs / Math.max(1, until - from));
  return (
    <span class="left" title={`ends ${exact(until)}`}>
      <span class={`drain ${share < 0.1 ? "low" : ""}`} aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
      {duration(leftMs)}
    </span>
  );
}

export function State({ state, failed = false }: { readonly state: string; readonly failed?: boolean }): JSX.Element {
  return <span class={`state ${failed ? "failed" : state}`}>{failed ? "failed" : state}</span>;
}

export function Copy({
  text,
  label = "Copy",
  what,
}: {
  readonly text: string | (() => Promise<string>);
  readonly label?: string;
  readonly what: string;
}): JSX.Element {
  const copy = async () => {
    try {
      const value = typeof text === "string" ? text : await text();
      await copyText(value);
      say(`Copied ${what}.`);
    } catch (error) {
      say((error as Error).message, "bad");
    }
  };
  return (
    <button type="button" class="small" onClick={() => void copy()} aria-label={`${label}: ${what}`}>
      {label}
    </button>
  );
}

/** Browsers offer the clipboard only to secure pages; on plain HTTP the page selects the text and copies the selection. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return await navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (!isDone) throw new Error("the browser refused to copy; select the text and copy it by hand");
}

/** A scrollable part; it can have the focus, so that the keyboard scrolls it. */
export function Scroll({ label, kind = "", children }: { readonly label: string; readonly kind?: string; readonly children: ComponentChildren }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the focus for the keys that scroll
    <section class={`scroll ${kind}`} tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}

/** A program's text, which scrolls if it has many lines. */
export function Output({ text, label }: { readonly text: string; readonly label: string }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region needs the focus for the keys that scroll
    <section class="output" tabIndex={0} aria-label={label}>
      <pre>{text}</pre>
    </section>
  );
}

export function Empty({ title, children }: { readonly title: string; readonly children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <p>{title}</p>
      {children}
    </div>
  );
}

/** A shell command with a button that copies it. */
export function Command({ text }: { readonly text: string }): JSX.Element {
  return (
    <p class="command">
      <code>{text}</code> <Copy text={text} what="the command" />
    </p>
  );
}

export function Problem({ error }: { readonly error: string }): JSX.Element | null {
  return error === "" ? null : (
    <p class="problem" role="alert">
      {error}
    </p>
  );
}

export function Field({
  label,
  hint,
  children,
}: {
  readonly label: string;
  readonly hint?: string | undefined;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is among the children
    <label class="field">
      <span>{label}</span>
      {children}
      {hint === undefined ? null : <small>{hint}</small>}
    </label>
  );
}

/** Returns the text of the input or text area that caused an event. */
export const textFrom = (event: Event): string => (event.target as HTMLInputElement).value;
